import { randomBytes } from 'node:crypto'
import pg from 'pg'

/** A database of its own on the server of `TEST_DATABASE_URL`, which must be removed by `drop`. */
export async function freshDatabase(): Promise<{ url: string; drop: () => Promise<void> }> {
  const name = `atoll_test_${randomBytes(6).toString('hex')}`
  const server = serverUrl()
  await execute(server, `create database ${name}`)
  const own = new URL(server)
  own.pathname = `/${name}`
  return { url: own.href, drop: () => execute(server, `drop database if exists ${name} with (force)`) }
}

export async function execute(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}

function serverUrl(): string {
  const url = process.env['TEST_DATABASE_URL']
  if (url !== undefined && url !== '') return url
  throw new Error(
    'TEST_DATABASE_URL is not set. `npm test` starts a PostgreSQL server and sets it; by hand, name one whose user may ' +
      'create databases: TEST_DATABASE_URL=postgres://postgres@127.0.0.1:5432/postgres',
  )
}
