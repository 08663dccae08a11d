import pg from 'pg'
import { adminRole, databaseRole, databaseName, socketPort } from './settings.ts'

/** The address of a database of the cluster, in the form of `DATABASE_URL`. */
export function databaseUrl(socketDir: string, role = databaseRole, name = databaseName): string {
  return `postgres:///${name}?host=${encodeURIComponent(socketDir)}&port=${socketPort}&user=${role}`
}

/** The address for the role that may make databases and roles. */
export function adminUrl(socketDir: string, name = 'postgres'): string {
  return databaseUrl(socketDir, adminRole, name)
}

/** Connects, works and ends the connection. */
export async function withClient<Result>(
  config: pg.ClientConfig,
  work: (client: pg.Client) => Promise<Result>,
): Promise<Result> {
  const client = new pg.Client(config)
  // A statement reports the end of the connection; without a listener the event would end the process.
  client.on('error', () => undefined)
  try {
    await client.connect()
    return await work(client)
  } finally {
    await client.end().catch(() => undefined)
  }
}
