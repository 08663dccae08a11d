/** Lists, names and removals of the command line. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { beginAtoll, runAtoll } from '../support/command-line.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()
const atoll = (...argv: string[]) => runAtoll(world, ...argv)

/** What a command prints that works. */
async function said(...argv: string[]): Promise<string> {
  const { status, stdout, stderr } = await atoll(...argv)
  assert.equal(status, 0, `${argv.join(' ')}: ${stderr}`)
  return stdout
}

/** What a command prints that ends with this code. */
async function refused(code: number, ...argv: string[]): Promise<string> {
  const { status, stdout, stderr } = await atoll(...argv)
  assert.deepEqual([status, stdout], [code, ''], `${argv.join(' ')}: ${stderr}`)
  return stderr
}

test('atoll create --name: the name serves wherever the id does, once', async () => {
  const id = (await said('create', '--name', 'web', '--metadata', 'run=17')).trim()
  assert.match(id, /^sb-/)
  assert.match(await said('get', 'web'), new RegExp(`^sandboxID +${id}\\n[^]*name +web\\n`))
  assert.match(await refused(6, 'create', '--name', 'web'), /name/)
  for (const name of ['Web', 'a\nb', 'sb-mine', 'x'.repeat(255)])
    assert.match(await refused(1, 'create', '--name', name), /name/)
  assert.match(await refused(2, 'get', 'a b'), /"a b" is no id or name of a sandbox/)
  assert.match(await refused(2, 'get', 'cp-0123456789abcdef'), /that of a checkpoint/)
  assert.match(await refused(5, 'get', 'nobody'), /nobody/)
  assert.equal(await said('tag', 'web', 'env=prod', 'owner=ada'), 'env=prod\nowner=ada\n')
  assert.equal(await said('tag', 'web', 'env=test', '--rm', 'owner'), 'env=test\n')
  assert.deepEqual(JSON.parse(await said('tag', 'web', '--json')), { env: 'test' })
  assert.match(await refused(2, 'tag', 'web', 'env'), /NAME=VALUE/)
  assert.match(await refused(2, 'tag', 'web', 'env=a', '--rm', 'env'), /set and taken away/)
})

test('atoll complete: what can be started is offered, and a checkpoint by its name and its id', async () => {
  assert.match(await said('complete', '--', 'create', '--template', 'ba'), /^base\t/)
  await said('create', '--name', 'kept')
  const id = (await said('checkpoint', 'kept', '--name', 'first', '--kind', 'disk_only')).trim()
  assert.match(await said('complete', '--', 'fork', 'kept/'), new RegExp(`^kept/first\t.*${id}\n$`))
  assert.match(await said('complete', '--', 'fork', id), new RegExp(`^${id}\t`))
  await said('checkpoint', 'rm', id)
})

test('atoll rename: the new name serves, the old one does not, and --none takes it away', async () => {
  const id = (await said('create', '--name', 'draft')).trim()
  await said('rename', 'draft', 'final')
  assert.match(await said('get', 'final'), new RegExp(`^sandboxID +${id}\n`))
  assert.match(await refused(5, 'get', 'draft'), /draft/)
  await world.sandbox({ name: 'taken' })
  assert.match(await refused(6, 'rename', 'final', 'taken'), /name is that of another sandbox/)
  assert.match(await refused(1, 'rename', 'final', 'A b'), /name: /)
  assert.match(await refused(2, 'rename', 'final'), /--none/)
  await said('rename', 'final', '--none')
  assert.match(await refused(5, 'get', 'final'), /final/)
})

test('atoll hibernate, atoll wake: each of several, and a failure keeps none from it', async () => {
  const ids = [await world.sandbox(), await world.sandbox({ name: 'sleeper' })]
  await refused(5, 'hibernate', ids[0] ?? '', 'none-such', 'sleeper')
  const states = async () =>
    await Promise.all(ids.map(async (id) => (await world.api.get(`/api/sandboxes/${id}`)).body.status))
  assert.deepEqual(await states(), ['hibernated', 'hibernated'])
  await said('wake', ...ids)
  assert.deepEqual(await states(), ['running', 'running'])
})

test('atoll ls: filters are those of the server, and -q has ids alone', async () => {
  const [one, two] = [await world.sandbox({ metadata: { run: '18' } }), await world.sandbox({ name: 'two' })]
  await said('tag', one, 'kind=list', 'a=1')
  await said('tag', 'two', 'kind=list')
  assert.equal(await said('ls', '-q', '--tag', 'kind=list', '--tag', 'a'), `${one}\n`)
  assert.equal(await said('list', '-q', '--tag', 'kind'), `${two}\n${one}\n`)
  assert.equal(await said('ls', '-q', '--metadata', 'run=18'), `${one}\n`)
  assert.equal(await said('ls', '-q', '--tag', 'kind=other'), '')
  const [header, row] = (await said('ls', '--tag', 'kind')).split('\n')
  assert.match(header ?? '', /^ID +NAME +STATUS +IMAGE +CPU +MEMORY +IDLE +EXPIRES +STARTED$/)
  assert.match(row ?? '', new RegExp(`^${two} +two +running +base +1 +1024 MB +5 min +- +\\d{4}-\\d\\d-\\d\\dT\\S+Z$`))
})

test('atoll rm: each failure is told, the others are removed, and all of them only when that is confirmed', async () => {
  const ids = [await world.sandbox(), await world.sandbox(), await world.sandbox({ name: 'third' })]
  const ended = await atoll('rm', ids[0] ?? '', 'none-such', 'no-more', 'third')
  assert.equal(ended.status, 5)
  assert.match(ended.stderr, /atoll: .*no-more.*\n/)
  assert.match(ended.stderr, /atoll: .*none-such.*\n/)
  for (const id of [ids[0], ids[2]]) assert.equal((await world.api.get(`/api/sandboxes/${id}`)).body.status, 'stopped')
  assert.match(await refused(2, 'rm'), /missing/)
  assert.match(await refused(2, 'rm', '--all'), /--yes/)
  assert.match(await refused(2, 'rm', '--all', '--yes', ids[1] ?? ''), /exclude each other/)
  assert.notEqual(await said('ls', '-q'), '')
  await said('rm', '--all', '--yes')
  assert.equal(await said('ls', '-q'), '')
})

test('atoll checkpoint: of all sandboxes or of one, with what depends on them; a sandbox may follow the group at once', async () => {
  const id = await world.sandbox({ name: 'kept' })
  const first = (await said('checkpoint', 'kept', '--name', 'one', '--kind', 'disk_only')).trim()
  const second = (
    await said('checkpoint', 'create', 'kept', '--name', 'two', '--kind', 'disk_only', '--expires-in', '3600')
  ).trim()
  const other = (await said('checkpoint', await world.sandbox(), '--kind', 'disk_only')).trim()
  assert.equal(await said('checkpoint', 'ls', '-q'), `${other}\n${second}\n${first}\n`)
  assert.equal(await said('checkpoint', 'list', '-q', 'kept'), `${second}\n${first}\n`)
  assert.equal(await said('checkpoint', 'kept', '--list'), await said('checkpoint', 'ls', 'kept'))
  const fork = (await said('fork', 'kept/one', '--name', 'forked')).trim()
  const rows = (await said('checkpoint', 'ls', 'kept')).trim().split('\n')
  assert.match(rows[0] ?? '', /^ID +NAME +KIND +STATUS +SIZE +CREATED +EXPIRES +OWNER +USED BY$/)
  assert.match(rows[1] ?? '', new RegExp(`^${second} +kept/two +disk_only +ready .* \\d{4}-\\S+Z +client +-$`))
  assert.match(rows[2] ?? '', new RegExp(`^${first} +kept/one +disk_only +ready .* - +client +1 sandbox$`))
  assert.match(await said('checkpoint', 'get', 'kept/two'), new RegExp(`^id +${second}\n[^]*expiresAt `))
  await said('checkpoint', 'expire', 'kept/two', '0')
  assert.doesNotMatch(await said('checkpoint', 'show', `${id}/two`), /expiresAt/)
  await said('restore', 'kept', 'one')

  const patch = (await beginAtoll(world, ['patch', 'kept/one', '-'], { input: 'echo hi\n' }).ended).stdout.trim()
  assert.match(patch, /^pa-/)
  assert.match(await said('patch', 'ls', 'kept/one'), new RegExp(`\n${patch} +on_wake +\\S+ +- +echo hi\n$`))
  assert.match(await refused(5, 'patch', 'rm', 'kept/one', 'pa-0123456789abcdef'), /pa-/)
  await said('patch', 'rm', 'kept/one', patch)
  assert.equal(await said('patch', 'ls', '-q', 'kept/one'), '')

  assert.match(await refused(5, 'checkpoint', 'rm', 'kept/three', 'kept/two'), /three/)
  assert.equal(await said('checkpoint', 'ls', '-q', 'kept'), `${first}\n`)
  await said('rm', 'forked')
  await said('checkpoint', 'rm', '--all', '--yes')
  assert.equal(await said('checkpoint', 'ls', '-q'), '')
  assert.match(fork, /^sb-/)
})

test('atoll preview: it is declared, listed and removed', async () => {
  const id = await world.sandbox({ name: 'served' })
  const declared = await said('preview', 'served', '3000', '--token', 'auto')
  assert.match(declared, new RegExp(`^http://${id}-p3000\\.\\S+\\ntoken: \\S+\\n$`))
  await said('preview', 'set', 'served', '3001', '--token', 'auto')
  assert.equal(await said('preview', 'ls', '-q', 'served'), '3000\n3001\n')
  assert.match(await said('preview', 'ls', 'served'), /^PORT +HOST [^]*\n3000 +\S+ +- +yes /)
  await said('preview', 'rm', 'served', '3000', '3001')
  assert.equal(await said('preview', 'ls', '-q', 'served'), '')
  assert.match(await refused(2, 'preview', 'served', '70000'), /port/)
})

test('atoll image prune: caches go that no build has, and with --all images without a name', async () => {
  assert.equal(await said('image', 'prune'), 'nothing to delete\n')
  const sandboxId = await world.sandbox()
  const mount = (key: string) =>
    world.sandboxes.mounts.attach(world.orgId, sandboxId, { type: 'cache', key, target: `/${key}` })
  const held = await mount('held')
  await (await mount('pip')).detach()
  const from = { base: 'base', steps: [] }
  assert.equal((await world.api.post('/api/sandboxes', { image: from })).status, 201)
  assert.equal(await said('image', 'prune'), 'deleted 1 cache: 4.1 kB\n')
  await held.detach()
  const { caches, images, freedBytes } = JSON.parse(await said('image', 'prune', '--all', '--json'))
  assert.deepEqual([caches.length, images.length, freedBytes >= 4096], [1, 1, true])
  assert.equal((await world.api.get('/api/images')).body.length, 0)
  assert.equal(await said('image', 'prune', '--all'), 'nothing to delete\n')
})

test('atoll image ls: what can be started stands there, with own images between', async () => {
  const manifest = JSON.stringify({ steps: [{ type: 'run', args: { commands: ['true'] } }] })
  assert.match((await beginAtoll(world, ['image', 'build', 'tools', '-'], { input: manifest }).ended).stdout, /^img-/)
  const rows = (await said('image', 'ls')).trim().split('\n')
  assert.match(rows[0] ?? '', /^NAME +KIND +STATUS +SIZE +CREATED +USED +ID$/)
  assert.match(rows[1] ?? '', /^base +installed +ready /)
  assert.match(rows[2] ?? '', /^tools +own +ready .* img-/)
  assert.equal(await said('image', 'ls', '-q'), 'base\ntools\n')
  assert.match(await said('create', '--template', 'tools'), /^sb-/)
  assert.match(await refused(5, 'create', '--template', 'nope'), /nope/)
  const tagged = (await said('image', 'tag', 'tools', 'tools:3')).trim()
  assert.equal(await said('image', 'ls', '-q', 'tools'), 'tools:3\ntools\n')
  assert.equal(await said('image', 'ls', '-q', 'tools', '--sort', 'name'), 'tools\ntools:3\n')
  assert.equal(await said('image', 'ls', '-q', 'tool'), '')
  const other = JSON.stringify({ steps: [{ type: 'run', args: { commands: ['true', 'true'] } }] })
  const build = (...flags: string[]) =>
    beginAtoll(world, ['image', 'build', 'tools:3', '-', ...flags], { input: other }).ended
  assert.match((await build()).stderr, /there is an image named tools:3: replace it \(--replace\)/)
  assert.notEqual((await build('--replace')).stdout.trim(), tagged)
  assert.equal(await said('image', 'ls', '-q', '-a', tagged), `${tagged}\n`)
  assert.match(await refused(5, 'image', 'rm', 'base'), /installed image base belongs to the server/)
  await said('image', 'delete', 'tools', 'tools:3', tagged)
  assert.equal(await said('image', 'ls', '-q', '-a'), 'base\n')
})

test('atoll: words of other programs are refused with those to use', async () => {
  for (const [word, instead] of [
    ['stop', /atoll hibernate.*atoll rm/],
    ['pause', /atoll hibernate/],
    ['resume', /atoll wake/],
  ] as const) {
    assert.match(await refused(2, word, 'web'), instead)
  }
})
