import { createHash } from 'node:crypto'
import { realpathSync } from 'node:fs'
import { ServiceError } from '../errors.ts'

/** The folder below `/sys/fs/cgroup` in which a sandbox sees its limits. */
export const limitsName = 'sandbox'
/** The files in that folder. */
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
  /** An empty folder, which restored sandboxes see in place of masked folders. */
  readonly emptyDir: string
  /** The files below `/proc` and `/sys` that show a sandbox its own sizes (`lxcfs.ts`). */
  readonly shownDir: string
  /** The folder with the socket of the private database, beside `runDir`, which the driver empties. */
  readonly databaseDir: string
  /** Where hostd takes connections. */
  readonly hostdSocket: string
  readonly cgroupRoot: string
  /** The control group above those of the host's work for sandboxes (`cgroups/work-groups.ts`). */
  readonly workGroupRoot: string
  /** The control group of the private database: beside the others, which the driver removes with all processes in them. */
  readonly databaseGroup: string
  /** The control group of the process that sends webhooks. */
  readonly deliveryGroup: string
  /** The control group of the process that holds egress. */
  readonly egressGroup: string

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
    this.deliveryGroup = `${this.cgroupRoot}-hooks`
    this.egressGroup = `${this.cgroupRoot}-egress`
  }

  /** The folder of a sandbox in `/run`: its root mount, socket, pid and configuration. */
  sandboxDir(sandboxId: string): string {
    return `${this.sandboxesDir}/${sandboxId}`
  }

  /** Where the OCI runtime finds the volume of this id. */
  volumeDir(sandboxId: string, volumeId: string): string {
    return `${this.sandboxDir(sandboxId)}/volumes/${volumeId}`
  }

  guestDir(sandboxId: string): string {
    return `${this.sandboxDir(sandboxId)}/run`
  }

  guestSocket(sandboxId: string): string {
    return `${this.guestDir(sandboxId)}/guest.sock`
  }

  /** The files that show the sandbox its limits; see `host/limit-files.ts`. */
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

/** The program `atoll-egress`, likewise. */
export function egressToolIn(imageDir: string): string {
  return `${imageDir}/egress/atoll-egress`
}
