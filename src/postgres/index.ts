/** The private cluster of PostgreSQL that a server has without `DATABASE_URL`. */
export { type ClusterReport, inspectCluster } from './check.ts'
export { type ClusterOptions, PrivateCluster } from './cluster.ts'
export type { ProgramGroup } from './confinement.ts'
export { dumpCommand, restoreDump } from './dump.ts'
export { type Upgrade, upgradeCluster } from './upgrade.ts'
