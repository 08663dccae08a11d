import { mkdirSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import type { EgressContext, SandboxExit } from '../../sandbox/ports/runtime-driver.ts'
import type { DiskRates } from '../cgroups/disk-rates.ts'
import { Cgroups } from '../cgroups/index.ts'
import { WorkGroups } from '../cgroups/work-groups.ts'
import { LazyMemory } from '../criu/lazy-memory.ts'
import { findCriu, type CriuProgram } from '../criu/program.ts'
import { allowUserfaultfd } from '../criu/userfaultfd.ts'
import { DiskPool, InodeTemplates, templatesFolder } from '../disk/index.ts'
import { SpaceWatch } from '../disk/space-watch.ts'
import { HeldEgress, type EgressSettings } from '../egress/index.ts'
import { HostNames } from '../host-names.ts'
import { Hostd } from '../hostd/index.ts'
import { Lxcfs } from '../lxcfs.ts'
import { Network, Subnet } from '../network/index.ts'
import { ImageImporter } from '../oci-image/importer.ts'
import { ImagePusher } from '../oci-image/pusher.ts'
import { defaultImageLimits, type ImageLimits } from '../oci-image/limits.ts'
import { Registries, type Registry } from '../oci-image/registry.ts'
import { findTraits } from '../oci/container-config.ts'
import type { CreateOciRuntime } from '../oci/oci-runtime.ts'
import { Connections } from './connections.ts'
import { FirstStart } from './first-start.ts'
import { ImageFolder } from './image-folder.ts'
import { InPlace } from './in-place.ts'
import { Inventory } from './inventory.ts'
import { Launcher } from './launcher.ts'
import { LimitFiles } from './limit-files.ts'
import { Limits } from './limits.ts'
import { Shares, weightOfAll } from './shares.ts'
import { livenessTimes, type LivenessTimes } from './liveness.ts'
import { RunningSandboxes } from './running.ts'
import { MemorySaver } from './save-memory.ts'
import { HostStepMounts } from './step-mounts.ts'
import { Supervisor } from './supervisor.ts'
import { HostTrees } from './trees.ts'

/** More boots at a time would only wait longer for their guests. */
const bootsAtOnce = Math.max(4, 2 * availableParallelism())
const lazyBytesMinDefault = 128 * 1024 ** 2
/** Changes at a time: writes of records, and subvolumes that are made or removed. */
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
  /** Disk rates of each sandbox. Default: unlimited. */
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
  /** What holds the egress of sandboxes. Default: all are open. */
  egress?: EgressContext & EgressSettings
  /** Default: `livenessTimes`. */
  livenessTimes?: LivenessTimes
  /** Called with a sentence for each change of the host and each error outside a call. Default: ignored. */
  log?: (message: string) => void
}

/** What a driver has while it is closed too. */
export type DriverContext = ReturnType<typeof createContext>

/** Constructs a context. Of the host it touches only the data directory. Throws `invalid_request` for an illegal subnet. */
export function createContext(options: OciDriverOptions) {
  const { dataDir, diskPoolBytes, leaveHostFirewall, log = () => undefined } = options
  mkdirSync(dataDir, { recursive: true, mode: 0o700 })
  const names = new HostNames(dataDir)
  const { hash, runDir, sandboxesDir } = names
  const pooled = { imageFile: names.poolFile, mountDir: names.poolDir }
  const imageLimits = { ...defaultImageLimits, ...options.imageLimits }
  /**
   * A write of a record, and a subvolume that is made or removed, takes one permit; these changes do not nest. A backup takes all permits for
   * its cut (`backup-cut.ts`).
   */
  const changes = new Semaphore({ permits: changesMax })
  const subnet = new Subnet(options.subnet)
  const hostd = new Hostd({ socket: names.hostdSocket, log })
  const network = new Network({ hash, subnet, runDir, leaveHostFirewall, run: hostd.run, log })
  const pool = new DiskPool({ ...pooled, hostd, bytes: diskPoolBytes, changes })
  return {
    names,
    images: new ImageFolder(options.imageDir),
    network,
    egress: new HeldEgress({ names, imageDir: options.imageDir, network, given: options.egress, run: hostd.run, log }),
    hostd,
    pool,
    changes,
    space: new SpaceWatch({ ...pooled, hostd, log }),
    runtime: options.runtime({
      runDir,
      sandboxesDir,
      dataDir: names.dataDir,
      hostd,
      startGroups: startGroupsBelow(names),
    }),
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
    semaphore: new Semaphore({ permits: bootsAtOnce, permitsPerKey: bootsAtOnce / 2 }),
    log,
  }
}

/**
 * Starts are work for tenants like the rest: together they weigh no more against the server and its database than all sandboxes do, so that a call
 * to a running sandbox does not wait for starts of others.
 */
function startGroupsBelow({ workGroupRoot }: HostNames): () => Promise<string[]> {
  let found: Promise<Cgroups> | undefined
  return async () => {
    const cgroups = await (found ??= Cgroups.find())
    return await cgroups.makeWeighed(workGroupRoot, `${workGroupRoot}/starts`, weightOfAll)
  }
}

/** What a driver has while it is open. */
export type OpenHost = DriverContext & Awaited<ReturnType<typeof assemble>> & { lock: AsyncDisposable }

/** Finds out what the host can do and constructs the parts of a driver, each below the parts that it uses. */
export async function assemble(context: DriverContext, hostTool: string, onExit: (exit: SandboxExit) => void) {
  const { names, hostd, lxcfs, runtime, images, pool, network, egress, inventory, semaphore, locks, log } = context
  const { space, connections } = context
  const lazy = new LazyMemory(hostd, pool, context.lazyBytesMin)
  const [cgroups, criu] = await Promise.all([Cgroups.find(), criuOf(context, lazy)])
  const traits = await findTraits(cgroups, hostd.run, log)
  const templates = new InodeTemplates(pool.path(templatesFolder), hostd, log)
  const work = new WorkGroups({ cgroups, hostd, hostTool, parent: names.workGroupRoot })

  const stores = { pool, templates, images, inventory, log }
  const importer = new ImageImporter({
    ...{ pool, templates, images, hostd, work, log },
    ...{ records: inventory, limits: context.imageLimits, registries: context.registries },
  })
  const { imageLimits, registries } = context
  const pusher = new ImagePusher({ limits: imageLimits, registries, pool, work, log })
  const limitFiles = new LimitFiles({ names, traits })
  const shares = new Shares({ names, cgroups, traits, network, inventory })
  const limits = new Limits({ shares, lazy, names, runtime, cgroups, traits, pool, files: limitFiles })
  const machine = { names, hostd, runtime, network, egress, lxcfs, cgroups, images, pool, traits, lazy, criu, log }
  const running = new RunningSandboxes({ ...machine, connections })
  const supervisor = new Supervisor({
    ...{ ...machine, inventory, running, space, connections, locks },
    ...{ livenessTimes: context.livenessTimes, onExit },
  })
  const launcher = new Launcher({
    ...{ ...machine, templates, inventory, limitFiles, limits, running, semaphore },
    removeUnused: () => supervisor.removeUnused(),
  })
  const memory = new MemorySaver({ ...machine, work, inventory, running, connections, semaphore })
  const firstStart = new FirstStart({ ...stores, network, egress, running, limits, launcher })
  const stepMounts = new HostStepMounts({ names, cgroups, hostd, pool, space, inventory, running, locks })
  const inPlace = new InPlace({ ...stores, hostd, running, limits, memory, launcher, criu })
  return {
    ...{ cgroups, criu, traits, templates, work, lazy, importer, pusher },
    ...{ limitFiles, limits, shares, running, supervisor, launcher, memory, firstStart, inPlace, stepMounts },
    trees: new HostTrees(context),
  }
}

async function criuOf({ runtime, images, log }: DriverContext, lazy: LazyMemory): Promise<CriuProgram> {
  if (!runtime.canCheckpoint) return { path: undefined, reason: `the runtime ${runtime.name} saves no memory` }
  const criu = await findCriu(images.path, runtime)
  if (criu.path === undefined || !criu.lazyPages.ok || !lazy.isWanted || (await allowUserfaultfd(log))) return criu
  return { ...criu, lazyPages: { ok: false, reason: 'the kernel refuses userfaultfd' } }
}
