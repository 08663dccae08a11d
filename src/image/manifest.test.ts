import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { isServiceError } from '../errors.ts'
import { roundsDuring } from '../lib/testing/rounds.ts'
import { defaultImageLimits } from './image.ts'
import { hashesOf, type Manifest, planOf } from './manifest.ts'
import { type ManifestStep, summaryOf } from './steps.ts'

const base64 = (text: string) => Buffer.from(text).toString('base64')
const plan = (manifest: Manifest) => planOf(manifest, defaultImageLimits)
const hashes = async (steps: ManifestStep[], origin = 'base') => await hashesOf((await plan({ steps })).outline, origin)
const run = (command: string): ManifestStep => ({ type: 'run', args: { commands: [command] } })
const file = (path: string, content = base64('x')): ManifestStep => ({ type: 'add_file', args: { path, content } })
const folder = (path: string, ...names: string[]): ManifestStep => ({
  type: 'add_dir',
  args: { path, files: names.map((relativePath) => ({ relativePath, content: base64(relativePath) })) },
})

test('manifest: an outline has hashes in place of contents, which are kept once', async () => {
  const { outline, contents } = await plan({ steps: [file('/a'), file('/b'), folder('/c', 'x')] })
  assert.equal(contents.size, 1)
  const [[sha256 = '', content] = []] = contents
  assert.equal(content?.toString(), 'x')
  assert.deepEqual(outline.steps[0], { type: 'add_file', args: { path: '/a', bytes: 1, sha256 } })
  assert.deepEqual(outline.steps[2], {
    type: 'add_dir',
    args: { path: '/c', files: [{ relativePath: 'x', bytes: 1, sha256 }] },
  })
})

test('manifest: what is kept of all steps together is bounded, however it is spread', async () => {
  const long = (index: number) => `/${String(index).padStart(4_000, 'x')}`
  const names = Array.from({ length: 300 }, (_, index) => long(index).slice(1))
  const commands = Array.from({ length: 10 }, () => 'x'.repeat(100_000)).map(run)
  const steps = [folder('/a', ...names), ...commands]
  await plan({ steps: steps.slice(0, 7) })
  await assert.rejects(plan({ steps }), (error: unknown) => {
    assert.ok(isServiceError(error, 'invalid_request'))
    assert.match(error.message, /^image\.steps have more than 2097152 characters of texts/)
    return true
  })
})

test('manifest: the names of the base image are one', async () => {
  for (const base of [undefined, '', 'base', 'ubuntu', 'default'])
    assert.equal((await plan({ base })).outline.base, 'base')
  assert.equal((await plan({ base: 'python' })).outline.base, 'python')
})

test('manifest: steps share hashes up to the first that differs', async () => {
  const one = await hashes([run('a'), run('b'), run('c')])
  const other = await hashes([run('a'), run('b'), run('d')])
  assert.deepEqual(one.layerHashes.slice(0, 2), other.layerHashes.slice(0, 2))
  assert.notEqual(one.contentHash, other.contentHash)
  assert.equal((await hashes([run('a'), run('b')])).contentHash, one.layerHashes[1])
  assert.notEqual((await hashes([run('a')])).contentHash, (await hashes([run('a')], 'python')).contentHash)
  const [x, y] = await Promise.all(['x', 'y'].map((text) => hashes([file('/a', base64(text))])))
  assert.notEqual(x?.contentHash, y?.contentHash)
})

test('manifest: memory and what runs in it belong to the content, sizes and names do not', async () => {
  const hash = async (manifest: Manifest) => (await hashesOf((await plan(manifest)).outline, 'base')).contentHash
  const plain = await hash({})
  assert.equal(await hash({ builderMemoryMB: 512, runtimeMemoryMB: 256, name: 'x' }), plain)
  const all = await Promise.all(
    [{ memory: true }, { memory: true, startCommand: 'a' }, { memory: true, startCommand: 'a', readyCommand: 'b' }].map(
      hash,
    ),
  )
  assert.equal(new Set([plain, ...all]).size, 4)
})

test('manifest: bad input is refused with its field', async () => {
  const cases: [Manifest, string][] = [
    [{ steps: [file('a')] }, 'image.steps.0.args.path'],
    [{ steps: [run('a'), file('/a/../b')] }, 'image.steps.1.args.path'],
    [{ steps: [file('/a\0')] }, 'image.steps.0.args.path'],
    [{ steps: [file(`/${'a'.repeat(5000)}`)] }, 'image.steps.0.args.path'],
    [{ steps: [file('/a', 'no base64!')] }, 'image.steps.0.args.content'],
    [{ steps: [folder('/a', '../b')] }, 'image.steps.0.args.files.0.relativePath'],
    [{ steps: [folder('/a', 'b', 'c/../../d')] }, 'image.steps.0.args.files.1.relativePath'],
    [{ steps: [folder('/a', '/b')] }, 'image.steps.0.args.files.0.relativePath'],
    [{ steps: [folder('/a', '.')] }, 'image.steps.0.args.files.0.relativePath'],
    [{ steps: [folder('/a', 'b/')] }, 'image.steps.0.args.files.0.relativePath'],
    [{ steps: [folder('b')] }, 'image.steps.0.args.path'],
    [{ steps: [run(' ')] }, 'image.steps.0.args.commands.0'],
    [{ steps: [run('a\0')] }, 'image.steps.0.args.commands.0'],
    [{ steps: [{ type: 'workdir', args: { path: 'a' } }] }, 'image.steps.0.args.path'],
    [{ steps: [{ type: 'env', args: { vars: { 'A-B': '1' } } }] }, 'image.steps.0.args.vars'],
    [{ steps: [{ type: 'env', args: { vars: { A: 'two\nlines' } } }] }, 'image.steps.0.args.vars.A'],
    [{ steps: [{ type: 'apt_install', args: { packages: ['jq', '--force'] } }] }, 'image.steps.0.args.packages.1'],
    [{ steps: [{ type: 'pip_install', args: { packages: ['a b'] } }] }, 'image.steps.0.args.packages.0'],
    [{ steps: Array.from({ length: 101 }, () => run('a')) }, 'image.steps'],
    [{ steps: [folder('/a', ...Array.from({ length: 20_001 }, (_, index) => `f${index}`))] }, 'image.steps'],
    [{ startCommand: 'a' }, 'image.startCommand'],
    [{ memory: true, readyCommand: 'a' }, 'image.readyCommand'],
    [{ memory: true, startCommand: ' ' }, 'image.startCommand'],
  ]
  for (const [manifest, field] of cases) {
    await assert.rejects(
      plan(manifest),
      (error: Error) => isServiceError(error, 'invalid_request') && error.message.startsWith(`${field} `),
      field,
    )
  }
})

test('manifest: base64 with and without padding is taken', async () => {
  for (const content of ['eA==', 'eA', 'eHk=', 'eHk', '']) await plan({ steps: [file('/a', content)] })
  for (const content of ['e', 'eA==eA==', 'e A=', 'eHk=\n'])
    await assert.rejects(plan({ steps: [file('/a', content)] }), /base64/)
})

test('manifest: a hash is that of the JSON of its step, however long that is', async () => {
  const sha256 = (data: string) => createHash('sha256').update(data).digest('hex')
  for (const count of [0, 1, 499, 500, 501, 1700]) {
    const { outline } = await plan({ steps: [folder('/a', ...Array.from({ length: count }, (_, n) => `"f${n}`))] })
    const expected = sha256(`${sha256('{"base":"base"}')} ${JSON.stringify(outline.steps[0])}`)
    assert.equal((await hashesOf(outline, 'base')).contentHash, expected, String(count))
  }
})

test('manifest: a file of megabytes is decoded and hashed in parts, and other work goes on', async () => {
  const bytes = randomBytes(5_000_001)
  const rounds = await roundsDuring(async () => {
    const { outline, contents } = await plan({ steps: [file('/a', bytes.toString('base64'))] })
    const hash = createHash('sha256').update(bytes).digest('hex')
    assert.deepEqual(outline.steps[0], { type: 'add_file', args: { path: '/a', bytes: bytes.length, sha256: hash } })
    assert.ok(contents.get(hash)?.equals(bytes))
  })
  assert.ok(rounds > 10, String(rounds))
  const broken = `${bytes.toString('base64').slice(0, 4_000_000)}!${bytes.toString('base64').slice(4_000_001)}`
  await assert.rejects(plan({ steps: [file('/a', broken)] }), /base64/)
})

test('manifest: commands that no shell could be given are refused', async () => {
  const half = 'x'.repeat(70_000)
  await plan({ steps: [run(half)] })
  await assert.rejects(plan({ steps: [run(half + half)] }), /image\.steps\.0\.args\.commands must be at most/)
  const two: ManifestStep = { type: 'run', args: { commands: [half, half] } }
  await assert.rejects(plan({ steps: [two] }), /image\.steps\.0\.args\.commands must be at most/)
  await assert.rejects(plan({ memory: true, startCommand: half + half }), /image\.startCommand must be at most/)
})

test('manifest: a summary is one line', async () => {
  const { outline } = await plan({ steps: [run(`a\n${'b'.repeat(500)}`)] })
  assert.match(summaryOf(outline.steps[0]!), /^a b{100,}…$/)
})

test('manifest: commands after a workdir run there, and what env and workdir say is for all sandboxes of the image', async () => {
  const workdir = (path: string) => ({ type: 'workdir', args: { path } }) as const
  const env = (vars: Record<string, string>) => ({ type: 'env', args: { vars } }) as const
  const pwd: ManifestStep = { type: 'run', args: { commands: ['pwd'] } }
  const steps = [pwd, workdir('/a'), env({ A: '1', B: '1' }), pwd, workdir('/b'), env({ A: '2' }), pwd]
  const { outline } = await plan({ steps })
  const cwds = outline.steps.flatMap((step) => (step.type === 'run' ? [step.args.cwd] : []))
  assert.deepEqual(cwds, [undefined, '/a', '/b'])
  assert.deepEqual(outline.defaults, { envs: { A: '2', B: '1' }, cwd: '/b' })
  assert.equal((await plan({ steps: [pwd] })).outline.defaults, undefined)
  const ofRun = async (...before: ManifestStep[]) => {
    const { layerHashes } = await hashesOf((await plan({ steps: [...before, pwd] })).outline, 'base')
    return layerHashes.at(-1)
  }
  assert.notEqual(await ofRun(workdir('/a')), await ofRun(workdir('/b')))
  assert.notEqual(await ofRun(), await ofRun(env({ A: '1' })))
})

test('manifest: the variables of all env steps together are bounded as those of a sandbox are', async () => {
  const env = (name: string) => ({ type: 'env', args: { vars: { [name]: 'x'.repeat(100_000) } } }) as const
  const steps = Array.from({ length: 20 }, (_, index) => env(`A${index}`))
  await assert.rejects(plan({ steps }), { code: 'invalid_request', message: /^image\.steps must be at most \d+ bytes/ })
})

test('manifest: a Dockerfile that copies files is refused without a context, unless its target needs none', async () => {
  const dockerfile = 'FROM base AS first\nRUN true\nFROM base\nCOPY . /srv'
  await assert.rejects(planOf({ dockerfile }, defaultImageLimits), /dockerfile line 4: .*no context/)
  await planOf({ dockerfile, target: 'first' }, defaultImageLimits)
  await planOf({ dockerfile, context: 'ctx-0123456789abcdef' }, defaultImageLimits)
})
