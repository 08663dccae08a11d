import { PrivateCluster, type ProgramGroup, type ClusterOptions } from '../postgres/index.ts'
import { Cgroups } from '../runtime/cgroups/index.ts'
import { ServiceGroup } from '../runtime/cgroups/service-group.ts'
import { HostNames } from '../runtime/host-names.ts'
import { defaultStoreLimits } from '../store/index.ts'
import type { Log } from '../lib/log.ts'

/** The limits of the database in `ATOLL_LIMITS`. */
export const defaultDatabaseLimits = {
  ...defaultStoreLimits,
  /** Memory of all processes of the private PostgreSQL together. */
  memoryMb: 1024,
}

export type DatabaseLimits = typeof defaultDatabaseLimits

/** A process for each connection, and some ten of its own; `own.conf` may raise the number of connections. */
const processesMax = 1024
const mebibyte = 1024 * 1024

interface ClusterPlace extends Required<Pick<ClusterOptions, 'dataDir' | 'socketDir' | 'hiddenDir'>> {
  group: ProgramGroup
  connectionsMax: number
}

/** Where the private cluster of a data directory runs, and under which limits. */
export async function clusterPlace(dataDir: string, limits: Partial<DatabaseLimits> = {}): Promise<ClusterPlace> {
  const { databaseDir: socketDir, runDir: hiddenDir, databaseGroup } = new HostNames(dataDir)
  const { memoryMb, connectionsMax } = { ...defaultDatabaseLimits, ...limits }
  const group = new ServiceGroup(await Cgroups.find(), databaseGroup, {
    memoryBytes: memoryMb * mebibyte,
    processes: processesMax,
  })
  return { dataDir, socketDir, hiddenDir, group, connectionsMax }
}

export async function startCluster(
  dataDir: string,
  { beforeCreate, limits, log }: { beforeCreate: () => void; limits: Partial<DatabaseLimits> | undefined; log: Log },
): Promise<PrivateCluster> {
  return await PrivateCluster.start({ ...(await clusterPlace(dataDir, limits)), beforeCreate, log })
}
