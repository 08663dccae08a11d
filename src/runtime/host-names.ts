import { createHash } from 'node:crypto'
import { realpathSync } from 'node:fs'
import { ServiceError } from '../errors.ts'

/** Below `/sys/fs/cgroup` of a sandbox. */
export const limitsName = 'sandbox'
/** The files in it. */
export const limitFiles = ['memory.max', 'pids.max', 'cpu.max', 'disk.max', 'disk.current'] as const

const idPattern = /^[a-z0-9][a-z0-9-]{0,47}$/

/**
 * Every name that a data directory has on the host. All carry the hash of its real path, so that servers with different
 * data directories do not collide. Paths that must be short (sockets) or free of special characters (overlay options) lie in `/run`.
 */
export class HostNames {
  readonly dataDir: string
  /** Eight hexadecimal digits. */
  readonly hash: string
  readonly runDir: string
  readonly poolFile: string
  readonly poolDir: string
  readonly sandboxesDir: string
  /** Stays empty: what restored sandboxes see in place of masked folders. */
  readonly emptyDir: string
  /** What sandboxes see of the kernel as their own (`lxcfs.ts`). */
  readonly shownDir: string
  /** The socket of the private database: a folder beside `runDir`, which a boot and the driver empty. */
  readonly databaseDir: string
  /** Where hostd takes connections. */
  readonly hostdSocket: string
  readonly cgroupRoot: string
  /** Above those of what the host does for sandboxes (`cgroups/work-groups.ts`). */
  readonly workGroupRoot: string
  /** The group of the private database: beside the others, which the driver removes with all that runs in them. */
  readonly databaseGroup: string

  constructor(dataDir: string) {
    this.dataDir = realpathSync(dataDir)
    this.hash = createHash('sha256').update(this.dataDir).digest('hex').slice(0, 8)
    this.runDir = `/run/atoll-${this.hash}`
    this.poolFile = `${this.dataDir}/pool.img`
    this.poolDir = `${this.runDir}/pool`
    this.sandboxesDir = `${this.runDir}/sandboxes`
    this.emptyDir = `${this.runDir}/empty`
    this.shownDir = `${this.runDir}/shown`
    this.databaseDir = `/run/atoll-${this.hash}-db`
    this.hostdSocket = `${this.runDir}/hostd.sock`
    this.cgroupRoot = `/atoll-${this.hash}`
    this.workGroupRoot = `${this.cgroupRoot}-work`
    this.databaseGroup = `${this.cgroupRoot}-db`
  }

  /** The folder of a sandbox that a reboot empties: its root mount, socket, pid and configuration. */
  sandboxDir(sandboxId: string): string {
    return `${this.sandboxesDir}/${sandboxId}`
  }

  /** Where the volume of this id is shown to the runtime. */
  volumeDir(sandboxId: string, volumeId: string): string {
    return `${this.sandboxDir(sandboxId)}/volumes/${volumeId}`
  }

  guestDir(sandboxId: string): string {
    return `${this.sandboxDir(sandboxId)}/run`
  }

  guestSocket(sandboxId: string): string {
    return `${this.guestDir(sandboxId)}/guest.sock`
  }

  /** What the sandbox sees of its limits; see `host/limit-files.ts`. */
  limitsDir(sandboxId: string): string {
    return `${this.sandboxDir(sandboxId)}/limits`
  }

  cgroup(sandboxId: string): string {
    return `${this.cgroupRoot}/${sandboxId}`
  }
}

/** Ids become names of folders, cgroups and host names. Throws `invalid_request`. */
export function checkId(id: string): string {
  if (!idPattern.test(id)) throw new ServiceError('invalid_request', `${JSON.stringify(id)} is not a legal id`)
  return id
}

/** The program `atoll-hostd`, by the link that setup maintains. */
export function hostToolIn(imageDir: string): string {
  return `${imageDir}/hostd/atoll-hostd`
}
