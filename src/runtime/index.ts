/** The drivers behind the `RuntimeDriver` port. Each has a folder of its own; `network/` and `disk/` are shared by those of one host. */
export { createRuncDriver } from './oci/driver.ts'
export type { RuncDriverOptions } from './host/context.ts'
export { OfflineQuarantine } from './host/offline-quarantine.ts'
export { quarantinedIn, quarantineReasons } from './host/quarantine.ts'
export type { QuarantineItem } from './host/quarantine.ts'
