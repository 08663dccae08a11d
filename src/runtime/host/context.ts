import { mkdirSync } from 'node:fs'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import { DiskPool } from '../disk/index.ts'
import { Hostd } from '../hostd/index.ts'
import { Network, Subnet } from '../network/index.ts'
import { Connections } from './connections.ts'
import { guestPatience } from './liveness.ts'
import type { GuestPatience } from './liveness.ts'
import { ImageFolder } from './image-folder.ts'
import { Inventory } from './inventory.ts'
import type { CreateOciRuntime, OciRuntime } from '../oci/oci-runtime.ts'
import { LazyMemory, lazyBytesMinDefault } from '../criu/lazy-memory.ts'
import { HostNames } from './names.ts'
import { RunningSandboxes } from './running.ts'

export interface OciDriverOptions {
  /** What runs the containers: one of `ociRuntimes`. */
  runtime: CreateOciRuntime
  /** Holds the disk pool and the records; made if absent. */
  dataDir: string
  /** `ATOLL_IMAGE_DIR`: `base`, `guest`, `hostd`, `agent`, each a link to an immutable folder. */
  imageDir: string
  /** IPv4 network of the sandboxes, such as `10.200.0.0/16`; not shared with another server of this host. */
  subnet: string
  /** Size of the disk pool. Default: 80 % of the free space, at most 256 GiB. */
  diskPoolBytes?: number
  /** Saved memory of at least so much comes back while the sandbox runs already; 0: never. Default: 128 MiB. */
  lazyMemoryBytesMin?: number | undefined
  /** How long what was moved to quarantine stays there. Default: for ever. */
  quarantineKeptMs?: number | undefined
  /** `open` may move more than a tenth of what is there to quarantine. */
  mayQuarantineMany?: boolean
  /** No rules are added to firewalls of the host. */
  leaveHostFirewall?: boolean | undefined
  /** How long guests may leave the driver without an answer. Default: `guestPatience`. */
  guestPatience?: GuestPatience
  /** Told in a sentence what was done to the host and what went wrong beside the calls. Default: nothing is told. */
  log?: (message: string) => void
}

/** What a driver consists of, open or not. */
export interface DriverContext {
  images: ImageFolder
  names: HostNames
  hostd: Hostd
  runtime: OciRuntime
  pool: DiskPool
  network: Network
  inventory: Inventory
  running: RunningSandboxes
  lazy: LazyMemory
  connections: Connections
  quarantineKeptMs: number | undefined
  mayQuarantineMany: boolean
  guestPatience: GuestPatience
  /** Work on one sandbox is done in locks, by its id. */
  locks: KeyedMutex
  log: (message: string) => void
}

/** Throws `invalid_request` for a subnet that is none. */
export function createContext(options: OciDriverOptions): DriverContext {
  const { imageDir, diskPoolBytes: bytes, lazyMemoryBytesMin = lazyBytesMinDefault, log = () => undefined } = options
  mkdirSync(options.dataDir, { recursive: true, mode: 0o700 })
  const names = new HostNames(options.dataDir)
  const { hash, poolFile, runDir, poolDir } = names
  const subnet = new Subnet(options.subnet)
  const pool = new DiskPool({ imageFile: poolFile, mountDir: poolDir, bytes })
  const network = new Network({ hash, subnet, runDir, leaveHostFirewall: options.leaveHostFirewall, log })
  const hostd = new Hostd({ socket: names.hostdSocket, log })
  const runtime = options.runtime({ runDir, dataDir: names.dataDir, hostd })
  const lazy = new LazyMemory(names, hostd, pool, lazyMemoryBytesMin)
  return {
    images: new ImageFolder(imageDir),
    names,
    hostd,
    runtime,
    pool,
    network,
    inventory: new Inventory({ names, hostd, pool, slots: subnet.slots, log }),
    running: new RunningSandboxes({ names, hostd, runtime, network, lazy }),
    lazy,
    connections: new Connections(),
    quarantineKeptMs: options.quarantineKeptMs,
    mayQuarantineMany: options.mayQuarantineMany ?? false,
    guestPatience: options.guestPatience ?? guestPatience,
    locks: new KeyedMutex(),
    log,
  }
}
