export interface KnownResources {
  /** Sandboxes that should exist: running ones are adopted, hibernated ones keep their disk. */
  sandboxIds: readonly string[]
  checkpointIds: readonly string[]
  /** Snapshots of volumes too. Default: none. */
  volumeIds?: readonly string[]
  /** What was deleted, and interrupted starts, dumps and creations of volumes: a crash may have left remains of them. */
  abandoned: {
    sandboxIds: readonly string[]
    checkpointIds: readonly string[]
    volumeIds?: readonly string[]
  }
}

export interface ReconcileReport {
  /** Known sandboxes that run. A guest that stopped answering is reported later, as an exit. */
  running: string[]
  /** Known sandboxes that do not run; their disk, and memory if it was saved, are intact. */
  dormant: string[]
  /** Dormant ones whose memory was lost: they start anew on their disks. */
  forgotten: string[]
  /** Known sandboxes whose host does not answer: neither running nor lost. Their operations throw `unavailable`. */
  unreachable: string[]
  /** Known sandboxes without usable data. */
  lost: string[]
  /** Known checkpoints without usable data. */
  lostCheckpoints: string[]
  /** Ids of abandoned ones whose remains were removed, for the log. */
  removed: string[]
  /** Moved to quarantine. Known ones among them are lost too. */
  quarantined: Quarantined[]
  /** Known volumes without data. */
  lostVolumes: string[]
  /** Volumes that are neither known nor abandoned. They stay as they are. */
  unknownVolumes: string[]
  /** Known sandboxes and checkpoints that lay in quarantine and are back. */
  takenBack: string[]
}

export interface Quarantined {
  kind: 'sandbox' | 'checkpoint'
  id: string
  reason: QuarantineReason
  /** Why its record is unreadable. */
  fault?: string
}

/** The database does not know it, its driver record is unreadable or missing, or a disk below it is incomplete. */
export type QuarantineReason = 'unknown' | 'unreadable' | 'unrecorded' | 'damaged'
