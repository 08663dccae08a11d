import { mkdirSync } from 'node:fs'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import { DiskPool } from '../disk/index.ts'
import { Hostd } from '../hostd/index.ts'
import { Network, Subnet } from '../network/index.ts'
import { Connections } from './connections.ts'
import { livenessTimes, type LivenessTimes } from './liveness.ts'
import { ImageFolder } from './image-folder.ts'
import { Inventory } from './inventory.ts'
import type { CreateOciRuntime, OciRuntime } from '../oci/oci-runtime.ts'
import { LazyMemory, lazyBytesMinDefault } from '../criu/lazy-memory.ts'
import { HostNames } from '../host-names.ts'
import { RunningSandboxes } from './running.ts'

export interface OciDriverOptions {
  /** What runs the containers: one of `ociRuntimes`. */
  runtime: CreateOciRuntime
  /** Holds the disk pool and the records; made if absent. */
  dataDir: string
  /** `ATOLL_IMAGE_DIR`: `base`, `guest`, `hostd`, `agent`, each a link to an immutable folder. */
  imageDir: string
  /** IPv4 network of the sandboxes, such as `10.200.0.0/16`. No other server of this host uses it. */
  subnet: string
  /** Size of the disk pool. Default: 80 % of the free space, at most 256 GiB. */
  diskPoolBytes?: number
  /** Saved memory of at least so much comes back while the sandbox runs already; 0: never. Default: 128 MiB. */
  lazyMemoryBytesMin?: number | undefined
  /** How long items stay in quarantine. Default: for ever. */
  quarantineKeptMs?: number | undefined
  /** `open` may move more than a tenth of all sandboxes and checkpoints to quarantine. */
  mayQuarantineMany?: boolean
  /** No rules are added to firewalls of the host. */
  leaveHostFirewall?: boolean | undefined
  /** Default: `livenessTimes`. */
  livenessTimes?: LivenessTimes
  /** Called with a sentence for each change of the host and each error outside a call. Default: ignored. */
  log?: (message: string) => void
}

/** The dependencies that the files of a driver share, open or not. */
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
  livenessTimes: LivenessTimes
  /** Serialise work on one sandbox, by its id. */
  locks: KeyedMutex
  log: (message: string) => void
}

/** Throws `invalid_request` for an illegal subnet. */
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
    livenessTimes: options.livenessTimes ?? livenessTimes,
    locks: new KeyedMutex(),
    log,
  }
}
