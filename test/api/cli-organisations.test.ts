/** `atoll org` and `atoll key`, by an operator, an organisation and one with fewer rights. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { beginAtoll } from '../support/command-line.ts'
import { operatorKey, useWorld } from '../support/world.ts'

const world = useWorld()

async function ended(env: NodeJS.ProcessEnv, argv: readonly string[]) {
  return await beginAtoll(world, argv, { env: { ATOLL_OPERATOR_KEY: operatorKey, ...env } }).ended
}

async function said(...argv: string[]): Promise<string> {
  const { status, stdout, stderr } = await ended({}, argv)
  assert.equal(status, 0, `${argv.join(' ')}: ${stderr}`)
  return stdout.trim()
}

async function refused(code: number, ...argv: string[]): Promise<string> {
  const { status, stdout, stderr } = await ended({}, argv)
  assert.deepEqual([status, stdout], [code, ''], `${argv.join(' ')}: ${stderr}`)
  return stderr
}

test('atoll org: an organisation is made, bounded, suspended, resumed and removed by its name', async () => {
  const id = await said('org', 'create', 'Team Reef', '--limit', 'runningSandboxesMax=20', 'weight=7')
  assert.match(id, /^org_/)
  assert.match(await said('org', 'ls'), new RegExp(`${id} +Team Reef +active`))
  const changed = JSON.parse(await said('org', 'set', 'Team Reef', '--limit', 'weight=default', '--json'))
  assert.deepEqual([changed.limits.runningSandboxesMax, changed.limits.weight], [20, 100])
  assert.match(await refused(1, 'org', 'set', id, '--limit', 'weight=0'), /limits\.weight: must be from 1 to 1000/)
  assert.match(await refused(2, 'org', 'set', id, '--limit', 'weight'), /NAME=NUMBER/)
  assert.match(await refused(2, 'org', 'get', 'Nobody'), /no organisation is named "Nobody"/)

  const key = await said('key', 'create', '--org', 'Team Reef', '--name', 'first')
  assert.match(key, /^atoll_[0-9a-f]{48}$/)
  assert.match(await said('key', 'ls', '--org', id), /key_\S+ +first +atoll_[0-9a-f]{8}… +all/)
  const asTenant = { ATOLL_API_KEY: key }
  assert.match(await said('org', 'suspend', id, '--reason', 'the invoice is open'), /suspended/)
  const stopped = await ended(asTenant, ['ls'])
  assert.equal(stopped.status, 4)
  assert.match(stopped.stderr, /the invoice is open/)
  await said('org', 'resume', id)
  assert.equal((await ended(asTenant, ['ls'])).status, 0)
  const strange = await ended({ ...asTenant, ATOLL_OPERATOR_KEY: undefined }, ['org', 'ls'])
  assert.equal(strange.status, 4, 'no key of an organisation opens it')

  assert.match(await refused(2, 'org', 'rm', 'Team Reef'), /--yes/)
  await said('org', 'rm', 'Team Reef', '--yes')
  assert.match(await refused(5, 'org', 'get', id), /no organisation/)
  assert.equal((await ended(asTenant, ['ls'])).status, 4)
})

test('atoll key: a bounded one does its part alone, says its bounds, and ends with the one that made it', async () => {
  const maker = await said('key', 'create', '--scope', 'keys', 'sandbox:read', '--expires', '2h')
  const made = await ended({ ATOLL_API_KEY: maker }, [
    ...['key', 'create', '--name', 'ci', '--scope', 'sandbox:read', '--expires', '1h', '--name-prefix', 'ci-'],
  ])
  assert.equal(made.status, 0, made.stderr)
  const asCi = { ATOLL_API_KEY: made.stdout.trim() }
  const { stdout } = await ended(asCi, ['whoami'])
  assert.match(stdout, /^.+\nkey key_\S+ \(ci\)\nscopes sandbox:read\nnames that begin with ci-\nends \d{4}-/)
  const beyond = await ended(asCi, ['create'])
  assert.equal(beyond.status, 4)
  assert.match(beyond.stderr, /lacks the scope sandbox:write/)
  const more = await ended({ ATOLL_API_KEY: maker }, ['key', 'create', '--scope', 'image', '--expires', '1h'])
  assert.match(more.stderr, /lacks image/)
  assert.match(await refused(2, 'key', 'create', '--scope', 'all'), /there is no scope "all"/)
  assert.match(await refused(2, 'key', 'create', '--expires', 'soon'), /90d/)
  const keys = JSON.parse(await said('key', 'ls', '--json')) as { id: string; keyPrefix: string }[]
  const id = keys.find(({ keyPrefix }) => maker.startsWith(keyPrefix))?.id ?? ''
  await said('key', 'rm', id)
  for (const key of [maker, asCi.ATOLL_API_KEY]) assert.equal((await ended({ ATOLL_API_KEY: key }, ['ls'])).status, 4)
})
