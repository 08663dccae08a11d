/** `atoll tree`, `diff` and `rewind`, without a terminal. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runAtoll } from '../support/command-line.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()
const atoll = (...argv: string[]) => runAtoll(world, ...argv)

async function said(...argv: string[]): Promise<string> {
  const { status, stdout, stderr } = await atoll(...argv)
  assert.equal(status, 0, `${argv.join(' ')}: ${stderr}`)
  return stdout
}

async function refused(code: number, ...argv: string[]): Promise<string> {
  const { status, stdout, stderr } = await atoll(...argv)
  assert.deepEqual([status, stdout], [code, ''], `${argv.join(' ')}: ${stderr}`)
  return stderr
}

/** A sandbox with checkpoint `v1` and a fork. */
async function made(name: string) {
  const { machines } = world
  const id = (await said('create', '--name', name)).trim()
  const checkpoint = (await said('checkpoint', name, '--name', 'v1', '--kind', 'disk_only')).trim()
  const fork = (await said('fork', checkpoint)).trim()
  machines.trees.disks.set(checkpoint, { '/workspace/a\u001b[2J.txt': 'one\u001b[31m\n' })
  return { id, checkpoint, fork }
}

test('atoll tree: a line for each node, with names as the server may have them, and JSON', async () => {
  const { checkpoint, fork } = await made('web')
  world.machines.trees.bytes.set(checkpoint, 2_500_000)
  const odd = { name: 'a\u001b[2J\nb', kind: 'disk_only' }
  const { body } = await world.api.post('/api/sandboxes/web/checkpoints', odd)
  const time = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`
  const lines = [
    `● web +running  ${time}`,
    `├─◇ v1 +disk +${time}  2.5 MB`,
    `│ └─● ${fork} +running  ${time}`,
    `└─◇ ${body.id} a\\\\x1b\\[2J b +disk +${time}`,
  ]
  assert.match(await said('tree', 'web'), new RegExp(`^${lines.join('\n')}\n$`))
  assert.equal(JSON.parse(await said('tree', 'web', '--json')).nodes.length, 4)
  assert.match(await refused(5, 'tree', 'nobody'), /nobody/)
  assert.match(await refused(2, 'tree', 'cp-0123456789abcdef'), /that of a checkpoint/)
})

test('atoll diff: what is no terminal gets the patch as it is; --stat and --json do not steer one', async () => {
  const { checkpoint } = await made('site')
  const plain = 'diff --git a/a\u001b[2J.txt b/a\u001b[2J.txt\n-one\u001b[31m\n'
  for (const from of ['v1', checkpoint, 'site/v1']) assert.equal(await said('diff', 'site', from), plain)
  assert.equal(await said('diff', 'site', 'v1', 'v1'), '')
  const stat = await said('diff', 'site', 'v1', '--stat')
  assert.equal(stat, ' a\\x1b[2J.txt | 1 -\n 1 file changed, 1 deletion(-)\n')
  assert.equal(await said('diff', 'site', 'v1', 'v1', '--stat'), '')
  const json = await said('diff', 'site', 'v1', '--json')
  assert.ok(!json.includes('\u001b'))
  assert.equal(JSON.parse(json).files.length, 1)
  assert.match(await refused(5, 'diff', 'site', 'v2'), /v2/)
  assert.match(await refused(1, 'diff', 'site', 'v1', '--folder', 'x'), /folder/)
  assert.match(await refused(2, 'diff', 'site', 'v1', '--json', '--stat'), /exclude/)
  assert.match(await refused(2, 'diff', 'site', 'a b'), /"a b" is no id or name of a checkpoint/)
})

test('atoll rewind: the present is kept first, what is printed undoes it, and --no-undo keeps nothing', async () => {
  const { id, checkpoint, fork } = await made('shop')
  const names = async () =>
    (await world.api.get(`/api/sandboxes/${id}/checkpoints`)).body.map((one: { name: string }) => one.name)
  const { stdout, stderr, status } = await atoll('rewind', 'shop', 'v1')
  assert.equal(status, 0, stderr)
  // These machines keep no memory.
  assert.match(stderr, /without its processes/)
  const [, undo = ''] = /^To undo this: (atoll rewind shop before-rewind-[\d-]+)\n$/.exec(stdout) ?? []
  assert.deepEqual(await names(), ['v1', undo.split(' ').at(-1)])
  assert.match(await said(...undo.split(' ').slice(1)), /^To undo this/)
  assert.equal((await names()).length, 3)
  assert.equal(await said('rewind', 'shop', checkpoint, '--no-undo'), '')
  assert.equal((await names()).length, 3)
  const json = JSON.parse(await said('rewind', 'shop', 'shop/v1', '--json'))
  assert.deepEqual([json.sandboxId, json.checkpointId], [id, checkpoint])
  assert.match(json.undoCheckpointId, /^cp-/)
  assert.equal((await names()).length, 4)
  assert.match(await refused(5, 'rewind', 'shop', 'v9'), /v9/)
  assert.match(await refused(2, 'rewind', fork, checkpoint), /another sandbox/)
  assert.equal((await names()).length, 4, 'nothing is kept for a rewind that cannot be')
})

test('atoll rewind: a restore that is refused leaves no checkpoint behind', async () => {
  const { id } = await made('kept')
  const { machines } = world
  const { restore } = machines
  machines.restore = () => Promise.reject(new Error('no'))
  assert.equal((await atoll('rewind', 'kept', 'v1')).status, 1)
  machines.restore = restore
  assert.equal((await world.api.get(`/api/sandboxes/${id}/checkpoints`)).body.length, 1)
})

test('atoll checkpoint ls: those of turns by their origin alone', async () => {
  const { id } = await made('turns')
  const input = { name: 'turn x', owner: 'turn', kind: 'disk_only' } as const
  const { checkpoints } = world.sandboxes
  const turn = await checkpoints.create(world.orgId, id, input)
  await checkpoints.settled(world.orgId, turn.id)
  assert.ok(!(await said('checkpoint', 'ls', 'turns', '-q')).includes(turn.id))
  assert.equal(await said('checkpoint', 'ls', 'turns', '-q', '--origin', 'turn'), `${turn.id}\n`)
  assert.match(await refused(6, 'checkpoint', 'rm', turn.id), /deleted with it/)
})
