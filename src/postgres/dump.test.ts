import assert from 'node:assert/strict'
import { test } from 'node:test'
import { refuses } from '../lib/testing/refuses.ts'
import { newestBinaries } from './binaries.ts'
import { dumpCommand } from './dump.ts'

const { major } = await newestBinaries()

test('dump: a password is in the environment of the program, and not on its command line', async () => {
  const databaseUrl = 'postgres://user:p%40ss@host:5432/name?sslmode=require'
  const { argv, env } = await dumpCommand({ databaseUrl, id: '1-1', major })
  assert.ok(argv.includes('--dbname=postgres://user@host:5432/name?sslmode=require'), argv.join(' '))
  assert.equal(env['PGPASSWORD'], 'p@ss')
  for (const other of ['postgres:///atoll?host=%2Frun%2Fx&user=atoll', 'postgres://user@host/name']) {
    const command = await dumpCommand({ databaseUrl: other, id: '1-1', major })
    assert.ok(command.argv.includes(`--dbname=${other}`))
    assert.equal(command.env['PGPASSWORD'], undefined)
  }
})

test('dump: a server that is newer than all installed programs is refused with the package', async () => {
  await refuses(
    dumpCommand({ databaseUrl: 'postgres:///x', id: '1-1', major: major + 1 }),
    'unavailable',
    new RegExp(`install postgresql-${major + 1}`),
  )
})
