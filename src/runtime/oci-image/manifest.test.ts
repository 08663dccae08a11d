import assert from 'node:assert/strict'
import { arch } from 'node:process'
import { test } from 'node:test'
import { defaultImageLimits } from './limits.ts'
import { chainIds, digestOf, readConfiguration, readManifest } from './manifest.ts'

const digest = (letter: string) => `sha256:${letter.repeat(64)}`
const part = (letter: string, more: object = {}) => ({ digest: digest(letter), size: 10, ...more })
const machine = { os: 'linux', architecture: arch === 'x64' ? 'amd64' : arch }
const read = (value: unknown) => readManifest(JSON.stringify(value), 'image.oci', defaultImageLimits)
const index = (...manifests: object[]) => ({ schemaVersion: 2, manifests })

test('manifest: an image has a configuration and layers, all of them in its registry', () => {
  const image = { schemaVersion: 2, config: part('a'), layers: [part('b'), part('c', { urls: [] })] }
  assert.deepEqual(read(image), image)
  const outside = { ...image, layers: [part('b', { urls: ['http://10.0.0.1/'] })] }
  assert.throws(() => read(outside), /outside its registry/)
  assert.throws(() => read({ ...image, config: part('a', { urls: ['http://10.0.0.1/'] }) }), /outside its registry/)
  for (const wrong of [{}, [], null, { ...image, schemaVersion: 1 }, { ...image, config: part('A') }]) {
    assert.throws(() => read(wrong), /has no manifest/)
  }
  assert.throws(() => readManifest('{', 'archive', defaultImageLimits), /archive has a manifest .* not JSON/)
  assert.throws(() => read({ ...image, layers: Array.from({ length: 128 }, () => part('b')) }), /127 layers/)
  const large = { ...image, layers: [part('b', { size: 2 ** 33 })] }
  assert.throws(() => read(large), { code: 'too_large' })
  assert.throws(() => read({ ...image, layers: [part('b', { size: -1 })] }), /has no manifest/)
})

test('manifest: of a list the image for this machine is taken', () => {
  const other = part('a', { platform: { os: 'linux', architecture: 's390x' } })
  const unknown = part('d', { platform: { os: 'unknown', architecture: 'unknown' } })
  assert.deepEqual(read(index(other, unknown, part('b', { platform: machine }))), { instance: digest('b') })
  assert.deepEqual(read(index(part('c'))), { instance: digest('c') })
  assert.deepEqual(read(index(part('c'), part('c'))), { instance: digest('c') }, 'one image with two names')
  assert.throws(() => read(index(other, unknown)), /it has linux\/s390x, unknown\/unknown/)
  assert.throws(() => read(index(part('a'), part('b'))), /no single image/)
})

test('configuration: what it says about commands is checked', () => {
  const rootfs = { diff_ids: [digest('a')] }
  const of = (config: object) => readConfiguration(JSON.stringify({ rootfs, config }), 'image.oci').defaults
  assert.deepEqual(of({}), { env: {}, entrypoint: [], cmd: [] })
  const Env = ['A=1', 'B=x=y', 'A=2', 'C', 'no name=1', '=x']
  const all = of({ Env, WorkingDir: 'a/../b/', User: 'web:www-data', Entrypoint: ['/e'], Cmd: null })
  assert.deepEqual(all, {
    env: { A: '2', B: 'x=y', C: '' },
    cwd: '/b',
    user: 'web:www-data',
    entrypoint: ['/e'],
    cmd: [],
  })
  for (const User of ['a b', 'a:b:c', '../x', ':x', '-1']) assert.throws(() => of({ User }), /user/, User)
  assert.throws(() => of({ Entrypoint: ['a\0b'] }), /NUL/)
  const foreign = JSON.stringify({ architecture: 's390x', os: 'linux', rootfs })
  assert.throws(() => readConfiguration(foreign, 'image.oci'), /is for linux on s390x/)
  assert.throws(() => readConfiguration('{}', 'archive'), /archive has no configuration/)
})

test('chain: a layer is named by all that is below it', () => {
  assert.deepEqual(chainIds([]), [])
  const [first, second] = chainIds([digest('a'), digest('b')])
  assert.equal(first, digest('a'))
  assert.equal(second, digestOf(`${digest('a')} ${digest('b')}`))
})
