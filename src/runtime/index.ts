/** The driver behind the `RuntimeDriver` port, and the programs that it can run containers with. */
import type { CreateOciRuntime } from './oci/oci-runtime.ts'
import { createRunc } from './oci/runc.ts'

export { poolSpace } from './disk/space.ts'
export { copiedPattern, draftOf } from './host/backup-cut.ts'
export type { Copied, Cut, CutSubvolume, PoolBackups } from './host/backup-cut.ts'
export type { OciDriverOptions } from './host/context.ts'
export type { Registry } from './oci-image/registry.ts'
export { openOfflineRestore, restoredRecord, type OfflineRestore } from './host/offline-restore.ts'
export { openOfflineQuarantine, type OfflineQuarantine } from './host/offline-quarantine.ts'
export { quarantinedIn, quarantineReasons, type QuarantineItem } from './host/quarantine.ts'
export { createOciDriver } from './host/driver.ts'

/** By the value of `ATOLL_RUNTIME`. */
export const ociRuntimes = { runc: createRunc } satisfies Record<string, CreateOciRuntime>
export type OciRuntimeName = keyof typeof ociRuntimes
