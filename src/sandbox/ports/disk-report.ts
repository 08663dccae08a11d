import { ServiceError } from '../../errors.ts'

export interface DiskReport {
  /**
   * `low`: there is little left. `full`: sandboxes are frozen until there is space, so that no write that they were told of is lost.
   * `failing`: the disk has failed to take what it must.
   */
  state: DiskState
  /** For people, in every other state than `ok`. */
  reason?: string
  /** Size of what disks, layers, volumes and memory share. */
  poolBytes: number
  /** What can still be written to it. */
  availableBytes: number
  /** What is left of the file system that it grows on. */
  belowBytes: number
  /** What it can still grow by when nothing is left there. */
  reserveBytes: number
  /** Failed reads, writes and the like, by kind, since the pool was made. */
  errors: Record<string, number>
}

/** Throws `no_capacity` with the reason while the disks of the hosts take no more data. */
export function assertDiskTakesData(driver: { disk?(): DiskReport }): void {
  const { state, reason } = driver.disk?.() ?? { state: 'ok' as const }
  if (state === 'ok') return
  throw new ServiceError('no_capacity', reason ?? 'the disk takes no more data', {
    details: { retryAfterSeconds: diskRetryAfterSeconds },
  })
}

const diskRetryAfterSeconds = 60
export const diskStates = ['ok', 'low', 'full', 'failing'] as const
export type DiskState = (typeof diskStates)[number]
