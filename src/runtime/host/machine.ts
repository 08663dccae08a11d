import type { Cgroups } from '../cgroups/index.ts'
import type { LazyMemory } from '../criu/lazy-memory.ts'
import type { CriuProgram } from '../criu/program.ts'
import type { DiskPool, InodeTemplates } from '../disk/index.ts'
import type { HeldEgress } from '../egress/index.ts'
import type { HostNames } from '../host-names.ts'
import type { Hostd } from '../hostd/index.ts'
import type { Lxcfs } from '../lxcfs.ts'
import type { Network } from '../network/index.ts'
import type { HostTraits } from '../oci/container-config.ts'
import type { OciRuntime } from '../oci/oci-runtime.ts'
import type { ImageFolder } from './image-folder.ts'
import type { Inventory } from './inventory.ts'

/** What the parts of a driver work with, each of which names those that it uses. */
export interface Machine {
  names: HostNames
  hostd: Hostd
  runtime: OciRuntime
  network: Network
  egress: HeldEgress
  lxcfs: Lxcfs
  cgroups: Cgroups
  images: ImageFolder
  pool: DiskPool
  traits: HostTraits
  templates: InodeTemplates
  lazy: LazyMemory
  criu: CriuProgram
  inventory: Inventory
  log: (message: string) => void
}
