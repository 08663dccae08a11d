import { inspectCluster } from '../postgres/index.ts'
import { works, type HostCheck } from '../runtime/doctor/index.ts'

/** Doctor's row of the database. It looks and starts nothing, so it may run beside a server. */
export function databaseCheck(databaseUrl: string | undefined): HostCheck {
  return {
    name: 'database',
    required: true,
    async run({ dataDir }) {
      if (databaseUrl !== undefined) return works('a PostgreSQL server of yours, by DATABASE_URL')
      return await inspectCluster(dataDir)
    },
  }
}
