/** The drivers behind the `RuntimeDriver` port. Each has a folder of its own; `network/` and `disk/` are shared by those of one host. */
export { createRuncDriver } from './runc/driver.ts'
export type { RuncDriverOptions } from './runc/parts.ts'
export { OfflineQuarantine } from './runc/offline-quarantine.ts'
export { quarantinedIn, quarantineReasons } from './runc/quarantine.ts'
export type { QuarantineItem } from './runc/quarantine.ts'
