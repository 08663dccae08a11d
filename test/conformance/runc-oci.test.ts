/** OCI images as checkpoints of the runc driver: what starts from them, what they share, and what is refused. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createHash, randomUUID } from 'node:crypto'
import { mkdtempSync } from 'node:fs'
import { readdir, readFile, realpath, rm, watch, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { Readable } from 'node:stream'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import type { Registry } from '../../src/runtime/index.ts'
import type { ServiceError } from '../../src/errors.ts'
import type { ImageSource } from '../../src/sandbox/ports/runtime-driver.ts'
import type { Guest, SpawnRequest } from '../../src/sandbox/ports/guest.ts'
import { defined } from '../../src/lib/defined.ts'
import { imageDir } from '../support/images.ts'
import { dockerArchiveOf, imageOf, indexOf, ociArchiveOf, tarOf, type TarEntry } from '../support/oci-image.ts'
import { freePort } from '../support/listen.ts'
import { startDebianRegistry, startTestRegistry, testUser, type TestRegistry } from '../support/image-registry.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, slowness, specOf, succeed } from './driver-shell.ts'

const runFile = promisify(execFile)
const processWaitMs = 60_000 * slowness

/** Programs that tests put into images, compiled once. */
const work = mkdtempSync(`${tmpdir()}/atoll-oci-`)
const registries: Registry[] = []
let registry: TestRegistry
let statically: Buffer
let dynamically: Buffer

describe('OCI images on runc', () => {
  before(async () => {
    const source = new URL('../support/probe.c', import.meta.url).pathname
    await runFile('gcc', ['-static', '-O1', '-o', `${work}/static`, source])
    await runFile('musl-gcc', ['-O1', '-o', `${work}/musl`, source])
    statically = await readFile(`${work}/static`)
    dynamically = await readFile(`${work}/musl`)
    registry = await startTestRegistry()
    registries.push({ host: registry.host, insecure: true })
  })
  after(async () => {
    await registry[Symbol.asyncDispose]()
    await rm(work, { recursive: true, force: true })
  })
  const imageLimits = {
    bytesMax: 512 * 1024 ** 2,
    filesMax: 50_000,
    layersMax: 40,
    answerMs: 10_000 * slowness,
    // Longer than an import beside a slow one takes.
    stallMs: 15_000 * slowness,
  }
  const runc = useRunc({ registries, imageLimits })

  const importing = (source: ImageSource, signal?: AbortSignal, id = freshId('cp')) =>
    runc.driver.importImage!(id, source, signal).then((image) => ({ id, ...image }))
  const reference = (name: string): ImageSource => ({ reference: `${registry.host}/${name}` })
  /** The layers of the pool. */
  const layers = async () => (await readdir(`${runc.fixture.names.poolDir}/layers`)).toSorted()
  const imports = () => readdir(`${runc.fixture.names.poolDir}/imports`)

  test('image: a scratch one with one static program starts, runs, serves, and comes back from memory', async () => {
    const probe: TarEntry = { path: 'probe', content: statically, mode: 0o755 }
    const config = {
      Env: ['GREETING=good=day', 'PATH=/'],
      WorkingDir: 'srv/../work',
      User: '65532:65532',
      Entrypoint: ['/probe'],
    }
    const image = imageOf([tarOf([probe, { path: 'work', type: 'folder' }])], { config })
    registry.add('scratch:1', image)
    const imported = await importing(reference('scratch:1'))
    assert.equal(imported.digest, image.digest)
    assert.deepEqual(imported.config, {
      env: { GREETING: 'good=day', PATH: '/' },
      cwd: '/work',
      user: '65532:65532',
      entrypoint: ['/probe'],
      cmd: [],
    })
    const id = await create(runc.driver, { from: { checkpointId: imported.id } })
    const guest = runc.guest(id)
    const { env, cwd, user } = imported.config
    assert.equal(
      await output(guest, { argv: ['/probe'], envs: env, ...defined({ cwd, user }) }),
      '65532:65532 65532 /work good=day\n',
    )
    assert.equal(await output(guest, { argv: ['/probe'] }), '0:0 0 / -\n')
    assert.equal(await output(guest, { argv: ['sh', '-c', 'x'] }, 127), '')
    await writeAndRead(guest, '/work/a file')
    await writeAndRead(guest, '/tmp/a file')
    await guest.spawn({ id: 'server', argv: ['/probe', 'serve', '8080'], envs: {} })
    await said(guest, 'server', (text) => text === 'serving\n')
    const connection = await guest.dial(8080)
    const chunks = await Array.fromAsync(connection)
    assert.equal(Buffer.concat(chunks as Buffer[]).toString(), 'hello\n')
    await guest.spawn({ id: 'counter', argv: ['/probe', 'count'], envs: {} })
    await said(guest, 'counter', (text) => text.includes('5\n'))
    const saved = freshId('cp')
    await runc.driver.checkpoint(id, saved, 'full')
    const fork = await create(runc.driver, { from: { checkpointId: saved } })
    const counted = String((await runc.guest(fork).output('counter')).stdout).length
    await said(runc.guest(fork), 'counter', (text) => text.length > counted)
    await runc.driver.hibernate(fork)
    await runc.driver.wake(specOf(fork))
    assert.equal(await output(runc.guest(fork), { argv: ['/probe'] }), '0:0 0 / -\n')
    await remove(runc.driver, id, fork, saved, imported.id)
    assert.deepEqual(await layers(), [])
  })

  test('image: a musl one runs what is linked dynamically, and a missing folder of the image is there', async () => {
    const loader = await realpath('/lib/ld-musl-x86_64.so.1').catch(() => '/lib/ld-musl-aarch64.so.1')
    const name = process.arch === 'x64' ? 'ld-musl-x86_64.so.1' : 'ld-musl-aarch64.so.1'
    const low = tarOf([
      { path: `lib/${name}`, content: await readFile(loader), mode: 0o755 },
      { path: 'etc/passwd', content: 'web:x:33:34::/srv:/bin/no\n' },
      { path: 'etc/group', content: 'web:x:34:\n' },
    ])
    const image = imageOf([low, tarOf([{ path: 'bin/probe', content: dynamically, mode: 0o755 }])], {
      compression: 'zstd',
    })
    const { id: image1, config } = await importing({ archive: chunked(ociArchiveOf(image)) })
    assert.deepEqual(config, { env: {}, entrypoint: [], cmd: [] })
    const id = await create(runc.driver, { from: { checkpointId: image1 } })
    assert.equal(
      await output(runc.guest(id), { argv: ['probe'], user: 'web', cwd: '/workspace' }),
      '33:34 33 /workspace -\n',
    )
    await remove(runc.driver, id, image1)
  })

  test('image: a Debian one of three layers starts, and whiteouts hide what is below', async () => {
    const debian = await debianLayer()
    const second = tarOf([
      { path: 'srv/gone/file', content: '1' },
      { path: 'srv/opaque/low', content: '1' },
      { path: 'srv/replaced', type: 'folder' },
      { path: 'srv/replaced/low', content: '1' },
      { path: 'srv/setuid', content: 'x', mode: 0o4755, uid: 65_535, gid: 7 },
      { path: 'srv/device', type: 'device' },
      { path: 'srv/attribute', records: { 'SCHILY.xattr.user.a': 'kept', 'SCHILY.xattr.trusted.overlay.opaque': 'y' } },
    ])
    const third = tarOf([
      { path: 'srv/.wh.gone' },
      { path: 'srv/opaque/.wh..wh..opq' },
      { path: 'srv/opaque/high', content: '2' },
      { path: 'srv/replaced', content: 'a file' },
      { path: 'etc/.wh.passwd-' },
    ])
    const image = imageOf([debian, second, third], { compression: 'none' })
    registry.tags.set('team/debian:list', indexOf(image))
    registry.add('team/debian:one', image)
    const list = await importing(reference('team/debian:list'))
    assert.notEqual(list.digest, image.digest)
    const pinned = await importing(reference(`team/debian@${image.digest}`))
    assert.equal(pinned.digest, image.digest)
    assert.equal((await layers()).length, 3, 'layers are there once')
    const id = await create(runc.driver, { from: { checkpointId: list.id }, diskMb: 512 })
    const guest = runc.guest(id)
    assert.equal(
      await succeed(guest, 'ls -A /srv /srv/opaque'),
      '/srv:\nattribute\nopaque\nreplaced\nsetuid\n\n/srv/opaque:\nhigh',
    )
    assert.equal(await succeed(guest, 'cat /srv/replaced; stat -c "%a %u %g" /srv/setuid'), 'a file4755 65535 7')
    assert.equal(
      await succeed(guest, 'stat -c %U:%G /bin/bash && echo new > /srv/gone && cat /srv/gone'),
      'root:root\nnew',
    )
    assert.equal(
      await succeed(guest, 'cp /srv/opaque/high /srv/copy && mv /srv/copy /srv/moved && cat /srv/moved'),
      '2',
    )
    await remove(runc.driver, list.id)
    assert.equal((await layers()).length, 3, 'another image has them')
    await remove(runc.driver, pinned.id)
    assert.equal((await layers()).length, 3, 'a sandbox stands on them')
    const fork = await checkpointed(id)
    assert.equal(await succeed(runc.guest(fork.id), 'cat /srv/gone'), 'new')
    await remove(runc.driver, id, fork.id, fork.from)
    assert.deepEqual(await layers(), [])
  })

  test('image: twelve layers start, and one that begins alike shares them', async () => {
    const tars = Array.from({ length: 12 }, (_, index) =>
      tarOf([
        { path: `files/${index}`, content: String(index) },
        { path: 'files/last', content: String(index) },
      ]),
    )
    const probe = tarOf([{ path: 'probe', content: statically, mode: 0o755 }])
    const [one, two] = await Promise.all([
      importing({ archive: chunked(dockerArchiveOf(imageOf([probe, ...tars]))) }),
      importing({ archive: chunked(ociArchiveOf(imageOf([probe, ...tars, tars[0]!], { compression: 'none' }))) }),
    ])
    assert.equal((await layers()).length, 14)
    const id = await create(runc.driver, { from: { checkpointId: two.id } })
    assert.equal((await runc.guest(id).list('/files')).length, 13)
    assert.equal(await readText(runc.guest(id), '/files/last'), '0')
    await remove(runc.driver, two.id)
    await remove(runc.driver, id)
    assert.equal((await layers()).length, 13)
    await runc.driver.close()
    await runc.reopen({ checkpointIds: [one.id] })
    assert.equal((await layers()).length, 13, 'a restart keeps what an image has')
    const later = await create(runc.driver, { from: { checkpointId: one.id } })
    assert.equal(await readText(runc.guest(later), '/files/last'), '11')
    await remove(runc.driver, later, one.id)
    assert.deepEqual(await layers(), [])
  })

  /** What a refused import says. It must leave nothing. */
  async function refusal(source: ImageSource, code: ServiceError['code'] = 'invalid_request'): Promise<string> {
    const error = await importing(source).then(
      () => assert.fail('it was imported'),
      (thrown: unknown) => thrown as ServiceError,
    )
    assert.equal(error.code, code, String(error))
    assert.deepEqual([await imports(), await layers()], [[], []], error.message)
    return error.message
  }

  const archiveOf = (...entries: TarEntry[]): ImageSource => ({
    archive: chunked(ociArchiveOf(imageOf([tarOf([{ path: 'fine', content: 'x' }]), tarOf(entries)]))),
  })

  test('image: a hostile layer is refused in words and leaves nothing', async () => {
    assert.match(await refusal(archiveOf({ path: '../../etc/passwd', content: 'x' })), /out of the layer/)
    const linked: TarEntry = { path: 'x', type: 'hardLink', target: '/etc/passwd' }
    assert.match(await refusal(archiveOf(linked)), /no file of the same layer/)
    assert.match(await refusal(archiveOf({ path: 'x', uid: 65_536 })), /65536/)
    const deep = Array.from({ length: 120 }, () => 'd').join('/')
    assert.match(await refusal(archiveOf({ path: 'x', records: { path: deep } })), /too deep/)
  })

  test('image: mount points that an image replaces lead nowhere outside', async () => {
    const probe = tarOf([
      { path: 'probe', content: statically, mode: 0o755 },
      { path: 'etc/resolv.conf', type: 'link', target: '../run/resolve/stub.conf' },
      { path: 'etc/hosts', type: 'link', target: '/../../../../../../etc/shadow' },
      { path: 'etc/hostname', type: 'link', target: '/proc/self/root/etc/hostname' },
      { path: 'etc/.wh.machine-id' },
      { path: 'tmp', type: 'link', target: '/var' },
      { path: 'proc', type: 'link', target: '/' },
      { path: '.atoll', type: 'link', target: '/etc' },
      { path: '.wh.dev' },
    ])
    const { id: image } = await importing({ archive: chunked(ociArchiveOf(imageOf([probe]))) })
    const shadow = await readFile('/etc/shadow', 'utf8')
    const id = await create(runc.driver, { from: { checkpointId: image } })
    assert.match(await readText(runc.guest(id), '/etc/resolv.conf'), /^nameserver /)
    assert.match(await readText(runc.guest(id), '/etc/hosts'), /localhost/)
    assert.match(await readText(runc.guest(id), '/etc/machine-id'), /^[0-9a-f]{32}\n$/)
    await writeAndRead(runc.guest(id), '/tmp/file')
    assert.equal(await readFile('/etc/shadow', 'utf8'), shadow)
    await remove(runc.driver, id, image)
  })

  test('image: one without layers starts, and one whose root is opaque has nothing of the layers below', async () => {
    const probe = tarOf([{ path: '.wh..wh..opq' }, { path: 'probe', content: statically, mode: 0o755 }])
    const none = await importing({ archive: chunked(ociArchiveOf(imageOf([]))) })
    const opaque = await importing({ archive: chunked(ociArchiveOf(imageOf([tarOf([{ path: 'low' }]), probe]))) })
    assert.equal((await layers()).length, 1)
    const [empty, full] = [
      await create(runc.driver, { from: { checkpointId: none.id } }),
      await create(runc.driver, { from: { checkpointId: opaque.id } }),
    ]
    assert.deepEqual(await runc.guest(empty).list('/workspace'), [])
    const names = (await runc.guest(full).list('/')).map(({ name }) => name)
    assert.ok(names.includes('probe') && !names.includes('low'))
    await remove(runc.driver, empty, full, none.id, opaque.id)
  })

  test('image: a sandbox is prepared from it, and fits no other image', async () => {
    const [one, other] = await Promise.all(
      ['1', '2'].map((content) =>
        importing({ archive: chunked(ociArchiveOf(imageOf([tarOf([{ path: 'a', content }])]))) }),
      ),
    )
    assert.ok(one && other)
    const spec = specOf(freshId('sb'), { from: { checkpointId: one.id } })
    await runc.driver.prepare(spec)
    assert.equal(await runc.driver.isPrepared({ ...spec, from: { checkpointId: other.id } }), false)
    assert.equal(await runc.driver.isPrepared(spec), true)
    await runc.driver.create(spec)
    assert.equal(await readText(runc.guest(spec.id), '/a'), '1')
    await remove(runc.driver, spec.id, one.id, other.id)
    assert.deepEqual(await layers(), [])
  })

  test('image: an archive that is none, or says another content than it has, is refused', async () => {
    const fine = imageOf([tarOf([{ path: 'a', content: '1' }])])
    assert.match(await refusal({ archive: chunked(Buffer.from('nothing of the kind'.repeat(100))) }), /no tar/)
    assert.match(await refusal({ archive: chunked(tarOf([{ path: 'a' }])) }), /neither an OCI nor a docker archive/)
    assert.match(await refusal({ archive: chunked(ociArchiveOf(fine).subarray(0, 3000)) }), /cut off|no file/)
    const other = imageOf([tarOf([{ path: 'a' }])], { diffIds: [`sha256:${'0'.repeat(64)}`] })
    assert.match(await refusal({ archive: chunked(ociArchiveOf(other)) }), /another content than its digest/)
    const outside = tarOf([
      { path: 'index.json', type: 'link', target: '/etc/passwd' },
      { path: 'manifest.json', type: 'link', target: '/etc/passwd' },
    ])
    assert.match(await refusal({ archive: chunked(outside) }), /has no file "index.json"/)
  })

  test('image: an archive that stops in the middle is given up, and a cancelled one ends with its reason', async () => {
    const { promise: never } = Promise.withResolvers<void>()
    const stopping = async function* () {
      yield Buffer.from('the beginning')
      await never
    }
    assert.match(await refusal({ archive: stopping() }), /comes slower than/)
    await assert.rejects(importing({ archive: stopping() }, AbortSignal.abort(new Error('cancelled'))), /cancelled/)
    const cancel = new AbortController()
    const imported = importing({ archive: stopping() }, cancel.signal)
    setImmediate(() => cancel.abort(new Error('cancelled later')))
    await assert.rejects(imported, /cancelled later/)
    assert.deepEqual([await imports(), await layers()], [[], []])
  })

  test('image: archives that come slowly hold up no other, and are given up', async () => {
    const end = new AbortController()
    const slowly = async function* () {
      for (;;) {
        yield Buffer.from('.')
        await sleep(100, undefined, { signal: end.signal })
      }
    }
    const slow = [1, 2, 3].map(() =>
      assert.rejects(importing({ archive: slowly() }), /comes slower than \d+ bytes a second/),
    )
    const image = await importing({ archive: chunked(ociArchiveOf(imageOf([tarOf([{ path: 'a', content: '1' }])]))) })
    assert.equal((await imports()).length, 3)
    await remove(runc.driver, image.id)
    await Promise.all(slow)
    end.abort()
    assert.deepEqual([await imports(), await layers()], [[], []])
  })

  test('image: who names a layer of another image without having it does not get it', async () => {
    const secret = tarOf([{ path: 'secret', content: 'of another' }])
    const owner = await importing({ archive: chunked(ociArchiveOf(imageOf([secret]))) })
    const diffIds = [`sha256:${createHash('sha256').update(secret).digest('hex')}`]
    const thief = imageOf([tarOf([{ path: 'a' }])], { diffIds })
    await assert.rejects(importing({ archive: chunked(ociArchiveOf(thief)) }), /another content than its digest/)
    await remove(runc.driver, owner.id)
  })

  test('image: a bomb of a layer is refused at its bound', async () => {
    const bomb = tarOf([{ path: 'zeros', content: Buffer.alloc(imageLimits.bytesMax) }])
    assert.match(await refusal({ archive: chunked(ociArchiveOf(imageOf([bomb]))) }, 'too_large'), /more than \d+ bytes/)
    const many = tarOf(Array.from({ length: imageLimits.filesMax + 1 }, (_, index) => ({ path: String(index) })))
    assert.match(await refusal({ archive: chunked(ociArchiveOf(imageOf([many]))) }, 'too_large'), /more than \d+ files/)
    const layered = imageOf(Array.from({ length: 41 }, (_, index) => tarOf([{ path: String(index) }])))
    assert.match(await refusal({ archive: chunked(ociArchiveOf(layered)) }), /more than 40 layers/)
  })

  test('registry: one that is not named is refused before anything is asked of it', async () => {
    await using other = await startTestRegistry()
    const message = await refusal({ reference: `${other.host}/a:1` })
    assert.match(message, new RegExp(`^image.oci is in a registry that is not allowed.*${registry.host}`))
    assert.deepEqual(other.requests, [])
    assert.throws(() => runc.driver.assertImportable!('alpine'), /must be REGISTRY/)
    assert.throws(() => runc.driver.assertImportable!('dir:/etc'), /must be REGISTRY/)
    runc.driver.assertImportable!(`${registry.host}/a/b:c`)
  })

  test('registry: one that is away, answers wrongly, stops in the middle or lies about a digest is told apart', async () => {
    registries.push({ host: `127.0.0.1:${await freePort()}`, insecure: true })
    assert.match(await refusal({ reference: `${registries.at(-1)!.host}/a:1` }, 'unavailable'), /refused/)
    registries.pop()
    assert.match(await refusal(reference('missing:1')), /is not in the registry/)
    const image = imageOf([tarOf([{ path: 'a', content: randomUUID() }])])
    registry.add('faulty:1', image)
    const [layer = ''] = [...image.blobs.keys()].slice(-1)
    registry.blobs.set(layer, Buffer.from('x'.repeat(image.blobs.get(layer)!.length)))
    assert.match(await refusal(reference('faulty:1')), /another content/)
    registry.tags.set(
      'faulty:2',
      Buffer.from(image.manifest.toString().replace('"schemaVersion":2', '"schemaVersion":2 ')),
    )
    const elsewhere = `faulty@${image.digest}`
    registry.tags.delete('faulty:1')
    registry.interfere = (path, response) => {
      if (!path.includes('/manifests/')) return false
      response.writeHead(200, { 'content-type': 'application/vnd.oci.image.manifest.v1+json' })
      response.end(registry.tags.get('faulty:2'))
      return true
    }
    assert.match(await refusal(reference(elsewhere)), /another content/)
    registry.add('slow:1', image)
    registry.interfere = (path, response) => {
      if (!path.endsWith(layer)) return false
      response.writeHead(200, { 'content-length': image.blobs.get(layer)!.length })
      response.write('x')
      return true
    }
    assert.match(await refusal(reference('slow:1'), 'unavailable'), /sends less than/)
    registry.interfere = () => false
    const foreign = imageOf([tarOf([{ path: 'a' }])], { urls: ['http://169.254.169.254/latest'] })
    registry.add('foreign:1', foreign)
    assert.match(await refusal(reference('foreign:1')), /outside its registry/)
    registry.tags.set('elsewhere:1', indexOf())
    assert.match(await refusal(reference('elsewhere:1')), /linux\/s390x/)
  })

  test('registry: credentials reach it, and no image is given without', async () => {
    await using debian = await startDebianRegistry()
    const image = imageOf([tarOf([{ path: 'probe', content: statically, mode: 0o755 }])])
    const archive = `${work}/pushed.tar`
    await writeFile(archive, ociArchiveOf(image))
    const login = `${testUser.username}:${testUser.password}`
    const copy = ['--insecure-policy', 'copy', '--quiet', '--dest-creds', login, '--dest-tls-verify=false']
    await runFile('skopeo', [...copy, `oci-archive:${archive}`, `docker://${debian.host}/team/probe:1`])
    registries.push({ host: debian.host, insecure: true })
    assert.match(await refusal({ reference: `${debian.host}/team/probe:1` }), /may not be read/)
    registries.splice(registries.length - 1, 1, { host: debian.host, insecure: true, ...testUser })
    const { id, digest } = await importing({ reference: `${debian.host}/team/probe:1` })
    assert.equal(digest, image.digest)
    registries.pop()
    assert.deepEqual(await readdir(`${runc.fixture.names.runDir}/registries`), [])
    await remove(runc.driver, id)
  })

  test('import: a cancelled one leaves nothing, and its id can be used again', async () => {
    const image = imageOf([tarOf([{ path: 'a', content: randomUUID() }])])
    registry.add('cancelled:1', image)
    const { promise: asked, resolve } = Promise.withResolvers<void>()
    const [layer = ''] = [...image.blobs.keys()].slice(-1)
    registry.interfere = (path) => {
      if (!path.endsWith(layer)) return false
      resolve()
      return true
    }
    const cancel = new AbortController()
    const id = freshId('cp')
    const imported = importing(reference('cancelled:1'), cancel.signal, id)
    await asked
    cancel.abort(new Error('cancelled'))
    await assert.rejects(imported, /cancelled/)
    assert.deepEqual([await imports(), await layers()], [[], []])
    registry.interfere = () => false
    await importing(reference('cancelled:1'), undefined, id)
    await assert.rejects(importing(reference('cancelled:1'), undefined, id), /exists/)
    await remove(runc.driver, id)
    assert.deepEqual(await layers(), [])
  })

  test('import: a server that is killed in the middle leaves nothing after the next start', async () => {
    const image = imageOf([
      tarOf([{ path: 'a', content: randomUUID() }]),
      tarOf([{ path: 'b', content: randomUUID() }]),
    ])
    registry.add('killed:1', image)
    await runc.driver.close()
    const stages = [...image.blobs.keys()].slice(-1)
    for (const stage of [...stages, 'manifests']) {
      const { promise: asked, resolve } = Promise.withResolvers<void>()
      registry.interfere = (path) => {
        if (!path.includes(stage)) return false
        resolve()
        return true
      }
      const victim = await runc.fixture.startVictim({ sandboxIds: [], imported: `${registry.host}/killed:1` })
      await asked
      await victim.kill()
      await runc.reopen()
      assert.deepEqual([await imports(), await layers()], [[], []])
      const { stdout } = await runFile('ps', ['-eo', 'args'])
      assert.ok(!stdout.includes(`${registry.host}/killed`), 'skopeo has ended')
      await runc.driver.close()
    }
    registry.interfere = () => false
    await runc.reopen()
  })

  test('import: a server that is killed between two layers leaves none of them', async () => {
    const slow = tarOf([{ path: 'large', content: Buffer.alloc(128 * 1024 ** 2) }])
    registry.add('halfway:1', imageOf([tarOf([{ path: 'a', content: randomUUID() }]), slow], { compression: 'none' }))
    await runc.driver.close()
    const victim = await runc.fixture.startVictim({ sandboxIds: [], imported: `${registry.host}/halfway:1` })
    const changes = watch(`${runc.fixture.names.poolDir}/layers`)[Symbol.asyncIterator]()
    while ((await layers()).length === 0) await changes.next()
    await victim.kill()
    await changes.return?.()
    await runc.reopen()
    assert.deepEqual([await imports(), await layers()], [[], []])
    const { stdout } = await runFile('ps', ['-eo', 'args'])
    assert.ok(!stdout.includes(`unpack-layer --blob ${runc.fixture.names.poolDir}`), 'hostd has ended')
  })

  async function checkpointed(sandboxId: string): Promise<{ id: string; from: string }> {
    const from = freshId('cp')
    await runc.driver.checkpoint(sandboxId, from, 'disk_only')
    return { id: await create(runc.driver, { from: { checkpointId: from }, diskMb: 512 }), from }
  }
})

/** The base image of this machine without what is large in it. */
async function debianLayer(): Promise<Buffer> {
  const file = `${work}/debian.tar`
  const left = [
    'usr/local',
    'usr/share',
    'usr/lib/python3*',
    'usr/lib/git-core',
    'usr/lib/gcc',
    'var',
    'usr/lib/*/perl*',
  ]
  const excluded = left.map((path) => `--exclude=./${path}`)
  const root = await realpath(`${imageDir}/base`)
  await runFile('tar', ['--create', '--file', file, '--directory', `${root}/rootfs`, '--xattrs', ...excluded, '.'])
  return readFile(file)
}

async function output(
  guest: Guest,
  request: Omit<SpawnRequest, 'id' | 'envs'> & { envs?: Record<string, string> },
  exitCode = 0,
) {
  const id = randomUUID()
  await guest.spawn({ envs: {}, ...request, id })
  const ended = await guest.process(id, processWaitMs)
  const { stdout, stderr } = await guest.output(id)
  await guest.release(id)
  assert.equal(ended.exitCode, exitCode, String(stderr))
  return String(stdout)
}

/** Waits until a process has said something. */
async function said(guest: Guest, id: string, isEnough: (text: string) => boolean): Promise<void> {
  await using attachment = await guest.attach(id)
  let text = ''
  for await (const event of attachment) {
    if (event.type === 'output') text += event.data.toString()
    if (isEnough(text)) return
  }
  assert.fail(`it said only ${text}`)
}

async function writeAndRead(guest: Guest, path: string): Promise<void> {
  await guest.writeFile(path, Readable.from([Buffer.from('content')]))
  assert.equal(await readText(guest, path), 'content')
}

async function readText(guest: Guest, path: string): Promise<string> {
  const { body } = await guest.readFile(path)
  return Buffer.concat((await Array.fromAsync(body)) as Buffer[]).toString()
}

async function* chunked(bytes: Buffer): AsyncGenerator<Buffer> {
  const size = 1 << 20
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}
