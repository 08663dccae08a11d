import assert from 'node:assert/strict'
import { arch } from 'node:process'
import { test } from 'node:test'
import { roundsDuring } from '../../lib/testing/rounds.ts'
import { defaultImageLimits } from './limits.ts'
import { chainIds, digestOf, readConfiguration, readManifest } from './manifest.ts'

const digest = (letter: string) => `sha256:${letter.repeat(64)}`
const part = (letter: string, more: object = {}) => ({ digest: digest(letter), size: 10, ...more })
const machine = { os: 'linux', architecture: arch === 'x64' ? 'amd64' : arch }
const read = (value: unknown) => readManifest(Buffer.from(JSON.stringify(value)), 'image.oci', defaultImageLimits)
const index = (...manifests: object[]) => ({ schemaVersion: 2, manifests })

test('manifest: an image has a configuration and layers, all of them in its registry', async () => {
  const image = { schemaVersion: 2, config: part('a'), layers: [part('b'), part('c', { urls: [] })] }
  assert.deepEqual(await read(image), image)
  const outside = { ...image, layers: [part('b', { urls: ['http://10.0.0.1/'] })] }
  await assert.rejects(read(outside), /outside its registry/)
  await assert.rejects(read({ ...image, config: part('a', { urls: ['http://10.0.0.1/'] }) }), /outside its registry/)
  for (const wrong of [{}, [], null, { ...image, schemaVersion: 1 }, { ...image, config: part('A') }]) {
    await assert.rejects(read(wrong), /has no manifest/)
  }
  for (const text of ['{', '[]]', 'nul', '']) {
    const reading = readManifest(Buffer.from(text), 'archive', defaultImageLimits)
    await assert.rejects(reading, /archive has a manifest .* no JSON/, text)
  }
  await assert.rejects(read({ ...image, layers: Array.from({ length: 129 }, () => part('b')) }), /128 layers/)
  const large = { ...image, layers: [part('b', { size: 2 ** 33 })] }
  await assert.rejects(read(large), { code: 'too_large' })
  await assert.rejects(read({ ...image, layers: [part('b', { size: -1 })] }), /has no manifest/)
})

test('manifest: of a list the image for this machine is taken', async () => {
  const other = part('a', { platform: { os: 'linux', architecture: 's390x' } })
  const unknown = part('d', { platform: { os: 'unknown', architecture: 'unknown' } })
  assert.deepEqual(await read(index(other, unknown, part('b', { platform: machine }))), { instance: digest('b') })
  assert.deepEqual(await read(index(part('c'))), { instance: digest('c') })
  assert.deepEqual(await read(index(part('c'), part('c'))), { instance: digest('c') }, 'one image with two names')
  await assert.rejects(read(index(other, unknown)), /it has linux\/s390x, unknown\/unknown/)
  await assert.rejects(read(index(part('a'), part('b'))), /no single image/)
})

test('configuration: what it says about commands is checked', async () => {
  const rootfs = { diff_ids: [digest('a')] }
  const configuration = (value: object) => readConfiguration(Buffer.from(JSON.stringify(value)), 'image.oci')
  const of = async (config: object) => (await configuration({ rootfs, config })).defaults
  assert.deepEqual(await of({}), { env: {}, entrypoint: [], cmd: [] })
  const Env = ['A=1', 'B=x=y', 'A=2', 'C', 'no name=1', '=x']
  const all = await of({ Env, WorkingDir: 'a/../b/', User: 'web:www-data', Entrypoint: ['/e'], Cmd: null })
  assert.deepEqual(all, {
    env: { A: '2', B: 'x=y', C: '' },
    cwd: '/b',
    user: 'web:www-data',
    entrypoint: ['/e'],
    cmd: [],
  })
  for (const User of ['a b', 'a:b:c', '../x', ':x', '-1']) await assert.rejects(of({ User }), /user/, User)
  await assert.rejects(of({ Entrypoint: ['a\0b'] }), /NUL/)
  await assert.rejects(configuration({ architecture: 's390x', os: 'linux', rootfs }), /is for linux on s390x/)
  await assert.rejects(readConfiguration(Buffer.from('{}'), 'archive'), /archive has no configuration/)
})

test('configuration: what an image says of itself is kept, without what has no meaning, and bounded', async () => {
  const of = async (config: object) =>
    (await readConfiguration(Buffer.from(JSON.stringify({ rootfs: { diff_ids: [] }, config })), 'image.oci')).defaults
  const {
    env: _env,
    entrypoint: _entrypoint,
    cmd: _cmd,
    ...facts
  } = await of({
    ...{ Labels: { a: 'b' }, Volumes: { '/data': {}, '': {} }, StopSignal: 'SIGQUIT', Shell: ['/bin/ash', '-c'] },
    ExposedPorts: { '80': {}, '53/UDP': {}, http: {}, '8000-8010/tcp': {} },
    Healthcheck: { Test: ['CMD', 'true'], Interval: 30e9, Timeout: 0, StartPeriod: -5, Retries: 3 },
  })
  assert.deepEqual(facts, {
    ...{ labels: { a: 'b' }, volumes: ['/data'], stopSignal: 'SIGQUIT', shell: ['/bin/ash', '-c'] },
    exposedPorts: ['80/tcp', '53/udp', '8000-8010/tcp'],
    healthcheck: { test: ['CMD', 'true'], intervalMs: 30_000, retries: 3 },
  })
  const none = {
    Labels: null,
    Volumes: null,
    ExposedPorts: {},
    Healthcheck: { Test: [] },
    Shell: [],
    StopSignal: 'a b',
  }
  assert.deepEqual(await of(none), { env: {}, entrypoint: [], cmd: [] })
  const long = 'x'.repeat(200_000)
  const longNames = Object.fromEntries(['a', 'b', 'c'].map((name) => [name.repeat(60_000), {}]))
  for (const config of [
    { Labels: { a: long } },
    { Volumes: longNames },
    { ExposedPorts: longNames },
    { StopSignal: long },
    { Shell: [long] },
    { Healthcheck: { Test: ['CMD', long] } },
    { Labels: Object.fromEntries(Array.from({ length: 1001 }, (_, at) => [`l${at}`, ''])) },
  ])
    await assert.rejects(of(config), { code: 'too_large' }, JSON.stringify(config).slice(0, 40))
  for (const text of ['\0', '\ud800'])
    for (const config of [
      { Labels: { a: text } },
      { Labels: { [text]: '' } },
      { Volumes: { [text]: {} } },
      { Shell: [text] },
    ])
      await assert.rejects(of(config), { code: 'invalid_request' }, JSON.stringify(config))
  await assert.rejects(of({ Labels: ['a'] }), /no configuration of the OCI format/)
})

test('chain: a layer is named by all that is below it', async () => {
  assert.deepEqual(chainIds([]), [])
  const [first, second] = chainIds([digest('a'), digest('b')])
  assert.equal(first, digest('a'))
  assert.equal(second, await digestOf(Buffer.from(`${digest('a')} ${digest('b')}`)))
})

test('manifest: what would be many values is refused before they are made', async () => {
  const many = (unit: string) => `[${`${unit},`.repeat(1_000_000)}${unit}]`
  const onePart = JSON.stringify(part('a'))
  for (const text of [
    `{"schemaVersion":2,"manifests":${many('0')}}`,
    `{"schemaVersion":2,"config":${onePart},"layers":${many('{}')}}`,
    `{"schemaVersion":2,"other":{${'"a":0,'.repeat(2000)}"a":0}}`,
    `{"schemaVersion":2,"other":${'['.repeat(2_000_000)}`,
  ]) {
    const reading = readManifest(Buffer.from(text), 'archive', defaultImageLimits)
    await assert.rejects(reading, { code: 'too_large' }, text.slice(0, 60))
  }
})

test('manifest: of many parts that are none the first is told', async () => {
  await assert.rejects(read({ schemaVersion: 2, config: part('a'), layers: Array(15_000).fill(0) }), /has no manifest/)
  await assert.rejects(read(index(...Array.from({ length: 15_000 }, () => ({})))), /has no manifest/)
})

test('configuration: what commands get is bounded, and a text of megabytes is read in slices', async () => {
  const of = (config: object) =>
    readConfiguration(Buffer.from(JSON.stringify({ rootfs: { diff_ids: [] }, config })), 'archive')
  for (const config of [
    { Env: [`A${'='.repeat(200_000)}`] },
    { Env: Array(1001).fill('A=1') },
    { Entrypoint: ['x'.repeat(70_000)], Cmd: ['x'.repeat(70_000)] },
    { Cmd: Array(1001).fill('') },
    { WorkingDir: '/a/..'.repeat(1000) },
  ]) {
    await assert.rejects(of(config), { code: 'too_large' }, JSON.stringify(config).slice(0, 40))
  }
  const { defaults } = await of({ Env: [`A=${'='.repeat(100_000)}`] })
  assert.equal(defaults.env['A'], '='.repeat(100_000))
  const rounds = await roundsDuring(() => of({ other: 'x'.repeat(4_000_000) }))
  assert.ok(rounds > 20, String(rounds))
})
