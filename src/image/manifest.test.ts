import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../errors.ts'
import { defaultImageLimits } from './image.ts'
import { hashesOf, type Manifest, type ManifestStep, planOf, summaryOf } from './manifest.ts'

const base64 = (text: string) => Buffer.from(text).toString('base64')
const plan = (manifest: Manifest) => planOf(manifest, defaultImageLimits)
const hashes = (steps: ManifestStep[], origin = 'base') => hashesOf(plan({ steps }).outline, origin)
const run = (command: string): ManifestStep => ({ type: 'run', args: { commands: [command] } })
const file = (path: string, content = base64('x')): ManifestStep => ({ type: 'add_file', args: { path, content } })
const folder = (path: string, ...names: string[]): ManifestStep => ({
  type: 'add_dir',
  args: { path, files: names.map((relativePath) => ({ relativePath, content: base64(relativePath) })) },
})

test('manifest: an outline has hashes in place of contents, which are kept once', () => {
  const { outline, contents } = plan({ steps: [file('/a'), file('/b'), folder('/c', 'x')] })
  assert.equal(contents.size, 1)
  const [[sha256 = '', content] = []] = contents
  assert.equal(content?.toString(), 'x')
  assert.deepEqual(outline.steps[0], { type: 'add_file', args: { path: '/a', bytes: 1, sha256 } })
  assert.deepEqual(outline.steps[2], {
    type: 'add_dir',
    args: { path: '/c', files: [{ relativePath: 'x', bytes: 1, sha256 }] },
  })
})

test('manifest: the names of the base image are one', () => {
  for (const base of [undefined, '', 'base', 'ubuntu', 'default']) assert.equal(plan({ base }).outline.base, 'base')
  assert.equal(plan({ base: 'python' }).outline.base, 'python')
})

test('manifest: steps share hashes up to the first that differs', () => {
  const [one, other] = [hashes([run('a'), run('b'), run('c')]), hashes([run('a'), run('b'), run('d')])]
  assert.deepEqual(one.layerHashes.slice(0, 2), other.layerHashes.slice(0, 2))
  assert.notEqual(one.contentHash, other.contentHash)
  assert.equal(hashes([run('a'), run('b')]).contentHash, one.layerHashes[1])
  assert.notEqual(hashes([run('a')]).contentHash, hashes([run('a')], 'python').contentHash)
  assert.notEqual(hashes([file('/a', base64('x'))]).contentHash, hashes([file('/a', base64('y'))]).contentHash)
})

test('manifest: memory and what runs in it belong to the content, sizes and names do not', () => {
  const hash = (manifest: Manifest) => hashesOf(plan(manifest).outline, 'base').contentHash
  const plain = hash({})
  assert.equal(hash({ builderMemoryMB: 512, runtimeMemoryMB: 256, name: 'x' }), plain)
  const all = [
    { memory: true },
    { memory: true, startCommand: 'a' },
    { memory: true, startCommand: 'a', readyCommand: 'b' },
  ].map(hash)
  assert.equal(new Set([plain, ...all]).size, 4)
})

test('manifest: bad input is refused with its field', () => {
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
    assert.throws(
      () => plan(manifest),
      (error: Error) => isServiceError(error, 'invalid_request') && error.message.startsWith(`${field} `),
      field,
    )
  }
})

test('manifest: base64 with and without padding is taken', () => {
  for (const content of ['eA==', 'eA', 'eHk=', 'eHk', '']) plan({ steps: [file('/a', content)] })
})

test('manifest: a summary is one line', () => {
  const [step] = plan({ steps: [run(`a\n${'b'.repeat(500)}`)] }).outline.steps
  assert.match(summaryOf(step!), /^a b{100,}…$/)
})
