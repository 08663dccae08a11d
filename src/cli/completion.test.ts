import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { complete, linesOf, type Lookup } from './completion.ts'
import { writeConfig } from './config-file.ts'

const dir = await mkdtemp(join(tmpdir(), 'atoll-completion-'))
after(() => rm(dir, { recursive: true }))
process.env['XDG_CONFIG_HOME'] = dir
await writeConfig({ contexts: { home: { url: 'http://a' }, work: { url: 'http://b' } } })

let asked: unknown[] = []
const look: Lookup = async (kind, flags, operands) => {
  asked = [kind, flags, [...operands]]
  return [{ value: 'sb-1', description: 'running' }, { value: 'sb-2' }, { value: '$(touch x)' }]
}

/** The words that may stand in place of the last one. */
async function words(...given: string[]): Promise<string[]> {
  const { candidates } = await complete(given, look)
  return candidates.map(({ value }) => value)
}

test('completion: commands, those below them and their flags come from the program', async () => {
  assert.deepEqual(await words('ex'), ['exec'])
  assert.ok((await words('')).includes('session'))
  assert.ok(!(await words('')).includes('complete'), 'it is hidden')
  assert.deepEqual(await words('session', 'wa'), ['watch'])
  assert.deepEqual(await words('help', 'volume', 'sn'), ['snapshot'])
  assert.deepEqual(await words('ls', '--sta'), ['--status'])
  assert.deepEqual(await words('ls', '--js'), ['--json'])
  assert.deepEqual(await words('ls', '--status', 'run'), ['running'])
  assert.deepEqual(await words('--json', 'completion', ''), ['bash', 'zsh', 'fish'])
})

test('completion: arguments and flags are asked of the server that the line names', async () => {
  assert.deepEqual(await words('get', ''), ['sb-1', 'sb-2'])
  assert.deepEqual(await words('--context', 'work', 'rm', 'sb-1', '--url=http://c', ''), ['sb-1', 'sb-2'])
  assert.deepEqual(asked, ['sandbox', { context: 'work', url: 'http://c' }, ['sb-1']])
  await words('restore', 'sb-1', '')
  assert.deepEqual(asked, ['checkpoint', {}, ['sb-1']])
  await words('create', '--template', '')
  assert.equal(asked[0], 'template')
  await words('volume', 'get', '')
  assert.equal(asked[0], 'volume')
  assert.deepEqual(await words('volume', 'create', ''), [])
  await words('session', 'adopt', 'reefs', '')
  assert.deepEqual(asked, ['session', {}, ['reefs']])
  await words('session', 'rewind', 'reefs', '')
  assert.deepEqual(asked, ['turn', {}, ['reefs']])
  await words('session', 'fork', 'reefs', '--at', '')
  assert.deepEqual(asked, ['turn', {}, ['reefs']])
  assert.deepEqual(await words('use', 'w'), ['work'])
  assert.deepEqual(await words('ls', '--context', ''), ['home', 'work'])
})

test('completion: what a sandbox runs, a value of another kind and an unknown command have no words', async () => {
  assert.deepEqual(await words('exec', 'sb-'), ['sb-1', 'sb-2'])
  assert.deepEqual(await words('exec', 'sb-1', '--cw'), ['--cwd'])
  for (const line of [
    ['exec', 'sb-1', 'ls', ''],
    ['exec', 'sb-1', 'ls', '--js'],
    ['exec', '--cwd', ''],
    ['nothing', ''],
  ]) {
    assert.deepEqual(await words(...line), [], line.join(' '))
  }
  assert.deepEqual(await complete(['image', 'import', 'tools', ''], look), { candidates: [], hasFiles: true })
  const copy = await complete(['cp', 'file', 'sb-1'], look)
  assert.deepEqual(copy, { candidates: [{ value: 'sb-1:', description: 'running' }], hasFiles: true, isOpen: true })
})

test('completion: a line has the word and its meaning, which cannot break it', () => {
  const candidates = [{ value: 'a', description: 'x\ny\tz\x1b[1m' }, { value: 'b' }]
  assert.equal(linesOf({ candidates, hasFiles: true, isOpen: true }), 'a\tx y z\\x1b[1m\nb\n:files\n:open\n')
})
