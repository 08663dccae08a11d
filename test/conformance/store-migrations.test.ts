/** What becomes of the records of an earlier version. */
import assert from 'node:assert/strict'
import { after, before, suite, test } from 'node:test'
import { Kysely, PostgresDialect } from 'kysely'
import { Migrator } from 'kysely/migration'
import type { Migration } from 'kysely/migration'
import pg from 'pg'
import { openStore } from '../../src/store/index.ts'
import { migrations } from '../../src/store/migrations/index.ts'
import { execute, freshDatabase } from './store-databases.ts'

/** Brings an empty database to the schema of the version whose last migration this is. */
async function migrateUpTo(url: string, last: string): Promise<void> {
  const names = Object.keys(migrations)
  const known = names
    .slice(0, names.indexOf(last) + 1)
    .map((name): [string, Migration] => [name, migrations[name] as Migration])
  const db = new Kysely<unknown>({
    dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: url, max: 2 }) }),
  })
  try {
    const migrator = new Migrator({
      db,
      provider: { getMigrations: async () => Object.fromEntries(known) },
      migrationTableName: 'schema_migrations',
      migrationLockTableName: 'schema_migration_lock',
    })
    const { error } = await migrator.migrateToLatest()
    assert.equal(error, undefined)
  } finally {
    await db.destroy()
  }
}

suite('migrations', () => {
  let url: string
  let drop: () => Promise<void>
  before(async () => ({ url, drop } = await freshDatabase()))
  after(() => drop())

  test('a domain of before was never proven: it waits for its record, and other organisations may claim it', async () => {
    await migrateUpTo(url, '0006-installation')
    await execute(
      url,
      `insert into organisations (id, name) values ('org_1', 'one'), ('org_2', 'two');
      insert into sandboxes (id, org_id, status, image, cpu_count, memory_mb, disk_mb, timeout_seconds, envs, metadata, tags,
        created_at, started_at, active_at)
      select id, org_id, 'running', 'base', 1, 1024, 10240, 300, '{}', '{}', '{}', now(), now(), now()
      from (values ('sb-1', 'org_1'), ('sb-2', 'org_2')) as made (id, org_id);
      insert into previews (id, org_id, sandbox_id, port, custom_hostname, ssl_status, created_at) values
        ('pv-1', 'org_1', 'sb-1', 80, 'shop.example.com', 'active', now()),
        ('pv-2', 'org_1', 'sb-1', 81, null, 'active', now())`,
    )
    const { sandboxes, close } = await openStore({ databaseUrl: url })
    try {
      assert.equal(await sandboxes.previewByHostname('shop.example.com'), undefined)
      const waiting = await sandboxes.unverifiedPreviews(10)
      assert.deepEqual(
        waiting.map(({ id, sslStatus, verifiedAt }) => [id, sslStatus, verifiedAt]),
        [['pv-1', 'pending', undefined]],
      )
      assert.equal((await sandboxes.preview('sb-1', 81))?.sslStatus, 'active', 'without a domain nothing changes')
      const [kept] = waiting
      assert.ok(kept)
      await sandboxes.putPreview({ ...kept, id: 'pv-3', orgId: 'org_2', sandboxId: 'sb-2' })
      assert.equal(await sandboxes.verifyPreview(kept, new Date()), true)
    } finally {
      await close()
    }
  })
})
