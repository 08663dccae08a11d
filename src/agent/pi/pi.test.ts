import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { bashOperations, allowedToolNames, ownTools } from './tools.ts'
import { isTransientFailure } from './turn.ts'
import { skillPaths } from '../instructions.ts'
import { summarise } from '../summary.ts'

const folder = mkdtempSync(join(tmpdir(), 'atoll-pi-unit-'))
// Where commands put their output: no other test shall see it.
process.env['TMPDIR'] = folder
after(() => rmSync(folder, { recursive: true }))

async function bash(command: string, options: { timeout?: number; signal?: AbortSignal } = {}) {
  let output = ''
  const { exitCode } = await bashOperations.exec(command, folder, {
    onData: (data) => (output += data.toString()),
    ...options,
  })
  return { exitCode, output }
}

function outputFolders(): string[] {
  const root = join(tmpdir(), 'atoll-agent')
  return existsSync(root) ? readdirSync(root).toSorted() : []
}

test('summary: it is one line of at most 200 characters, whatever the model sent', () => {
  const failed = { content: [{ type: 'text', text: 'first\n\nCommand exited with code 3' }] }
  const cases: [string, unknown, unknown, boolean, string][] = [
    ['bash', { command: 'npm\n test' }, {}, false, 'Ran npm test'],
    ['bash', { command: '# the tests\nnpm test' }, {}, false, 'Ran the tests'],
    ['bash', { command: 'false' }, failed, true, 'Ran false: Command exited with code 3'],
    ['write', { path: '/w/app/a.txt', content: 'ü' }, {}, false, 'Wrote a.txt (2 bytes)'],
    ['edit', { path: '/etc/passwd' }, {}, false, 'Edited /etc/passwd'],
    ['read', { path: '/w/app' }, {}, false, 'Read .'],
    ['glob', { pattern: '**/*.ts' }, {}, false, 'Looked for files **/*.ts in .'],
    ['bash', null, null, true, 'Ran'],
    ['mystery', 7, undefined, false, 'Called mystery'],
  ]
  for (const [tool, args, result, isError, expected] of cases) {
    assert.equal(summarise(tool, args, result, isError, '/w/app'), expected)
  }
  const long = summarise('bash', { command: '🐚'.repeat(500) }, failed, true, '/')
  assert.ok(long.length <= 200 && long.isWellFormed())
})

test('pi tools: allowed tools are those of the protocol, in its order, in any case or alias', () => {
  assert.deepEqual(allowedToolNames(undefined), ['bash', 'read', 'write', 'edit', 'glob', 'grep', 'ls'])
  assert.deepEqual(allowedToolNames(['LS', 'find', 'Bash', 'web']), ['bash', 'glob', 'ls'])
  assert.deepEqual(allowedToolNames([]), [])
})

test('pi bash: a command returns its output and exit code', async () => {
  assert.deepEqual(await bash('echo out; echo err >&2; exit 3'), { exitCode: 3, output: 'out\nerr\n' })
  assert.deepEqual(await bash('kill -9 $$'), { exitCode: 128, output: '' })
  assert.equal((await bash('cat')).output, '')
  const big = await bash('head -c 3000000 /dev/zero | tr "\\0" x')
  assert.equal(big.output.length, 3_000_000)
})

test('pi bash: a timeout and an interrupt kill the whole group, with the messages that pi expects', async () => {
  await assert.rejects(bash('echo a; sleep 61.5 & sleep 61.5', { timeout: 0.3 }), /^Error: timeout:0.3$/)
  const abort = new AbortController()
  setTimeout(() => abort.abort(), 100)
  await assert.rejects(bash('sleep 61.5', { signal: abort.signal }), /^Error: aborted$/)
  await assert.rejects(bash('sleep 61.5', { signal: AbortSignal.abort() }), /^Error: aborted$/)
})

test('pi bash: a timeout of a year becomes a day, not zero', async () => {
  assert.equal((await bash('sleep 0.3; echo done', { timeout: 366 * 24 * 3600 })).output, 'done\n')
})

test('pi bash: a command with endless output is killed', async () => {
  const before = outputFolders()
  await assert.rejects(bash('yes'), /wrote more than/)
  assert.deepEqual(outputFolders(), before)
})

test('skills: they are found at any depth, and named ones only if they exist', () => {
  const root = join(folder, 'agent')
  for (const path of ['SKILL.md', 'a/b/c/SKILL.md', 'node_modules/x/SKILL.md', '.atoll/SKILL.md', 'a/OTHER.md']) {
    mkdirSync(join(root, path, '..'), { recursive: true })
    writeFileSync(join(root, path), 'x')
  }
  const named = join(folder, 'named/SKILL.md')
  mkdirSync(join(named, '..'))
  writeFileSync(named, 'x')
  assert.deepEqual(skillPaths(root, [named, '/missing/SKILL.md', join(root, 'SKILL.md')]), [
    named,
    join(root, 'SKILL.md'),
    join(root, 'a/b/c/SKILL.md'),
  ])
  assert.deepEqual(skillPaths('/missing', []), [])
})

test('pi glob: it needs no helper program', async () => {
  mkdirSync(join(folder, 'tree/node_modules/m'), { recursive: true })
  for (const path of ['tree/a.ts', 'tree/b.txt', 'tree/node_modules/m/c.ts']) writeFileSync(join(folder, path), '')
  const glob = ownTools(join(folder, 'tree')).find((tool) => tool.name === 'glob')
  assert.ok(glob)
  const result = await glob.execute('id', { pattern: '**/*.ts' }, undefined, undefined, undefined as never)
  assert.deepEqual(result.content, [{ type: 'text', text: 'a.ts' }])
})

test('pi turn: an answer is retried after a transient failure, and not after an error of the gateway', () => {
  const passing = [
    'Connection error.',
    'Request timed out.',
    'fetch failed',
    'terminated',
    'read ECONNRESET',
    '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
    '{"type":"error","error":{"type":"api_error","message":"Internal server error"}}',
    'server_error: An error occurred while processing your request.',
    'Error Code rate_limit_exceeded: Rate limit reached for gpt-5',
    'The server had an error while processing your request. Sorry about that!',
  ]
  const final = [
    '503 {"error":{"message":"connection error"}}',
    '529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
    '402 budget_exceeded',
    '400 bad request',
    'no such model',
    '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}',
    'Provider finish_reason: content_filter',
  ]
  assert.deepEqual([...passing, ...final].filter(isTransientFailure), passing)
})
