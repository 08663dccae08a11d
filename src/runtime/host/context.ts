import { mkdirSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import type { DiskRates } from '../cgroups/disk-rates.ts'
import { DiskPool } from '../disk/index.ts'
import { SpaceWatch } from '../disk/space-watch.ts'
import { defaultImageLimits, type ImageLimits } from '../oci-image/limits.ts'
import { Registries, type Registry } from '../oci-image/registry.ts'
import { HostNames } from '../host-names.ts'
import { Lxcfs } from '../lxcfs.ts'
import { Hostd } from '../hostd/index.ts'
import { Network, Subnet } from '../network/index.ts'
import type { CreateOciRuntime } from '../oci/oci-runtime.ts'
import { Connections } from './connections.ts'
import { ImageFolder } from './image-folder.ts'
import { Inventory } from './inventory.ts'
import { livenessTimes, type LivenessTimes } from './liveness.ts'

/** More boots than this at once only wait longer for their guests. */
const bootsAtOnce = Math.max(4, 2 * availableParallelism())
const lazyBytesMinDefault = 128 * 1024 ** 2
/** Writes of records, and subvolumes that are made or removed, at a time. */
export const changesMax = 1024

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
  /** What each sandbox may do with the pool. Default: what it can. */
  diskRates?: DiskRates | undefined
  /** Saved memory of at least so much comes back while the sandbox runs already; 0: never. Default: 128 MiB. */
  lazyMemoryBytesMin?: number | undefined
  /** How long items stay in quarantine. Default: for ever. */
  quarantineKeptMs?: number | undefined
  /** Where images may come from. Default: nowhere. */
  registries?: readonly Registry[]
  /** Bounds of the import of an image. Default: `defaultImageLimits`. */
  imageLimits?: Partial<ImageLimits>
  /** `open` may move more than a tenth of all sandboxes and checkpoints to quarantine. */
  mayQuarantineMany?: boolean
  /** No rules are added to firewalls of the host. */
  leaveHostFirewall?: boolean | undefined
  /** Default: `livenessTimes`. */
  livenessTimes?: LivenessTimes
  /** Called with a sentence for each change of the host and each error outside a call. Default: ignored. */
  log?: (message: string) => void
}

/** What a driver has while it is closed too. */
export type DriverContext = ReturnType<typeof createContext>

/** Makes it without touching the host, but for the data directory. Throws `invalid_request` for an illegal subnet. */
export function createContext(options: OciDriverOptions) {
  const { dataDir, diskPoolBytes, leaveHostFirewall, log = () => undefined } = options
  mkdirSync(dataDir, { recursive: true, mode: 0o700 })
  const names = new HostNames(dataDir)
  const { hash, runDir, sandboxesDir } = names
  const pooled = { imageFile: names.poolFile, mountDir: names.poolDir }
  const imageLimits = { ...defaultImageLimits, ...options.imageLimits }
  /**
   * Whoever writes a record, or makes or removes a subvolume, has a permit meanwhile, and nothing of the kind begins within one. A backup takes
   * all of them for its cut (`backup-cut.ts`).
   */
  const changes = new Semaphore({ permits: changesMax })
  const subnet = new Subnet(options.subnet)
  const network = new Network({ hash, subnet, runDir, leaveHostFirewall, log })
  const hostd = new Hostd({ socket: names.hostdSocket, log })
  const pool = new DiskPool({ ...pooled, hostd, bytes: diskPoolBytes, changes })
  return {
    names,
    images: new ImageFolder(options.imageDir),
    network,
    hostd,
    pool,
    changes,
    space: new SpaceWatch({ ...pooled, hostd, log }),
    runtime: options.runtime({ runDir, sandboxesDir, dataDir: names.dataDir, hostd }),
    lxcfs: new Lxcfs({ dir: names.shownDir, pidFile: `${runDir}/lxcfs.pid`, hostd, log }),
    inventory: new Inventory({ names, hostd, pool, slots: subnet.slots, changes, log }),
    imageLimits,
    registries: new Registries(options.registries ?? [], `${runDir}/registries`, imageLimits),
    connections: new Connections(),
    diskRates: options.diskRates,
    lazyBytesMin: options.lazyMemoryBytesMin ?? lazyBytesMinDefault,
    quarantineKeptMs: options.quarantineKeptMs,
    mayQuarantineMany: options.mayQuarantineMany ?? false,
    livenessTimes: options.livenessTimes ?? livenessTimes,
    /** Serialise work on one sandbox, by its id. */
    locks: new KeyedMutex(),
    /** Bounds starts and dumps together. */
    semaphore: new Semaphore({ permits: bootsAtOnce }),
    log,
  }
}
