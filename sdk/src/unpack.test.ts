import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, beforeEach, test } from 'node:test'
import fc from 'fast-check'
import { unpackArchive } from './unpack.ts'

const top = await mkdtemp(join(tmpdir(), 'atoll-unpack-'))
after(() => rm(top, { recursive: true }))
/** What no archive may touch. */
const outside = join(top, 'outside')
let target: string
let count = 0
beforeEach(async () => {
  target = join(top, String(++count), 'target')
  await mkdir(outside, { recursive: true })
  await writeFile(join(outside, 'secret'), 'secret')
})

interface Made {
  name: string | Buffer
  type?: string
  link?: string
  content?: string
  mode?: number
}

function entry({ name, type = '0', link = '', content = '', mode = 0o644 }: Made): Buffer {
  const header = Buffer.alloc(512)
  header.set(Buffer.from(name).subarray(0, 100))
  header.write(mode.toString(8).padStart(7, '0'), 100)
  header.write('0000000', 108)
  header.write('0000000', 116)
  header.write(Buffer.byteLength(content).toString(8).padStart(11, '0'), 124)
  header.write('14000000000', 136)
  header.write(type, 156)
  header.write(link, 157)
  header.write('ustar\x0000', 257)
  return Buffer.concat([
    summed(header),
    Buffer.from(content),
    Buffer.alloc((512 - (Buffer.byteLength(content) % 512)) % 512),
  ])
}

function summed(header: Buffer): Buffer {
  header.write(' '.repeat(8), 148)
  header.write(
    `${header
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, '0')}\0 `,
    148,
  )
  return header
}

async function* pieces(bytes: Buffer, length = 700): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length)
}

async function unpacked(...entries: Made[]): Promise<void> {
  await unpackArchive(pieces(Buffer.concat([...entries.map(entry), Buffer.alloc(1024)])), target)
}

/** Nothing has changed beside the target. */
async function assertNothingOutside(): Promise<void> {
  assert.deepEqual(await readdir(outside), ['secret'])
  assert.equal(await readFile(join(outside, 'secret'), 'utf8'), 'secret')
  assert.deepEqual(await readdir(join(target, '..')), ['target'])
}

test('unpack: what tar packs comes back as it was, in each of its formats', async () => {
  const source = join(top, 'source')
  await mkdir(join(source, 'deep/empty'), { recursive: true })
  const odd = Buffer.concat([Buffer.from(`${source}/`), Buffer.from([0x62, 0xff, 0x0a])])
  await writeFile(odd, 'odd')
  await writeFile(join(source, 'n'.repeat(255)), 'long')
  await mkdir(join(source, 'd'.repeat(200), 'e'.repeat(200)), { recursive: true })
  await writeFile(join(source, 'd'.repeat(200), 'e'.repeat(200), 'file'), 'far', { mode: 0o751 })
  await writeFile(join(source, 'large'), Buffer.alloc(1_000_001, 'abc'))
  for (let number = 0; number < 300; number++) await writeFile(join(source, `deep/${number}`), String(number))
  await symlink('/etc/passwd', join(source, 'deep/link'))
  await symlink('x'.repeat(300), join(source, 'far-link'))
  execFileSync('ln', [join(source, 'large'), join(source, 'second')])
  await mkdir(join(source, 'closed'))
  await writeFile(join(source, 'closed/file'), 'in')
  execFileSync('chmod', ['500', join(source, 'closed')])
  for (const format of ['gnu', 'posix', 'pax']) {
    const place = `${target}-${format}`
    const tar = spawn('tar', [`--format=${format}`, '-cf', '-', '-C', source, '.'])
    await unpackArchive(tar.stdout, place)
    execFileSync('diff', ['-r', '--no-dereference', source, place])
    const far = await stat(join(place, 'd'.repeat(200), 'e'.repeat(200), 'file'))
    assert.deepEqual([far.mode & 0o777, Math.floor(far.mtimeMs / 1000) > 1_600_000_000], [0o751, true])
    assert.equal((await stat(join(place, 'closed'))).mode & 0o777, 0o500)
    assert.equal((await stat(join(place, 'second'))).ino, (await stat(join(place, 'large'))).ino)
    assert.equal(await readlink(join(place, 'deep/link')), '/etc/passwd')
    assert.ok(
      (await readdir(place, { encoding: 'buffer' })).some((name) => name.equals(odd.subarray(source.length + 1))),
    )
  }
})

test('unpack: nothing is written outside of the folder, and what is refused is named while the rest arrives', async () => {
  const good = { name: './good', content: 'good' }
  const up = '../../outside'
  const cases: [Made[], RegExp][] = [
    [[{ name: `${outside}/new`, content: 'x' }], /new is absolute/],
    [[{ name: './../new', content: 'x' }], /leads out of the folder/],
    [[{ name: `./a/../../${up}/new`, type: '5' }], /leads out of the folder/],
    [
      [
        { name: './out', type: '2', link: outside },
        { name: './out/new', content: 'x' },
      ],
      /leads over out/,
    ],
    [
      [
        { name: './out', type: '2', link: up },
        { name: './out/deep/', type: '5' },
      ],
      /leads over out/,
    ],
    [
      [
        { name: './one', type: '2', link: 'two' },
        { name: './two', type: '2', link: up },
        { name: './one/new', content: 'x' },
      ],
      /leads over one/,
    ],
    [[{ name: './hard', type: '1', link: `${outside}/secret` }], /is absolute/],
    [[{ name: './hard', type: '1', link: `${up}/secret` }], /leads out/],
    [
      [
        { name: './out', type: '2', link: up },
        { name: './hard', type: '1', link: './out/secret' },
      ],
      /leads over out/,
    ],
    [
      [
        { name: './to', type: '2', link: `${up}/secret` },
        { name: './hard', type: '1', link: './to' },
      ],
      /name of no file/,
    ],
    [[{ name: './device', type: '4' }], /is a device/],
    [[{ name: './device', type: '3' }], /is a device/],
    [[{ name: './pipe', type: '6' }], /is a device/],
    [[{ name: './sparse', type: 'S', content: 'x' }], /is a device/],
    [
      [
        { name: './dir', type: '5' },
        { name: './dir', type: '2', link: up },
        { name: './dir/new', content: 'x' },
      ],
      /is a folder/,
    ],
  ]
  for (const [entries, message] of cases) {
    await assert.rejects(unpacked(...entries, good), message, JSON.stringify(entries))
    assert.equal(await readFile(join(target, 'good'), 'utf8'), 'good')
    await assertNothingOutside()
    await rm(target, { recursive: true })
  }
  // A file that takes the place of a link, or of another name of a file, is a new one.
  await unpacked({ name: './to', type: '2', link: `${up}/secret` }, { name: './to', content: 'new' })
  assert.ok((await lstat(join(target, 'to'))).isFile())
  await assertNothingOutside()
})

test('unpack: links that are in the folder already are not followed', async () => {
  await mkdir(target, { recursive: true })
  await symlink(outside, join(target, 'folder'))
  await symlink(join(outside, 'secret'), join(target, 'file'))
  await symlink(join(outside, 'made'), join(target, 'nowhere'))
  const refused = unpacked(
    { name: './folder/new', content: 'x' },
    { name: './file', content: 'mine' },
    { name: './nowhere', content: 'mine' },
    { name: './folder', type: '5' },
  )
  await assert.rejects(refused, /folder\/new leads over folder.*; .*folder leads over/)
  assert.equal(await readFile(join(target, 'file'), 'utf8'), 'mine')
  await assertNothingOutside()
})

test('unpack: bits that give rights are not taken over', async () => {
  await unpacked({ name: './run', mode: 0o6755, content: 'x' }, { name: './dir', type: '5', mode: 0o7777 })
  assert.equal((await stat(join(target, 'run'))).mode & 0o7000, 0)
  assert.equal((await stat(join(target, 'dir'))).mode & 0o6000, 0)
})

test('unpack: what is no archive, or ends early, is an error', async () => {
  const whole = Buffer.concat([entry({ name: './a', content: 'x'.repeat(2000) }), Buffer.alloc(1024)])
  for (const length of [0, 1, 511, 512, 1500, 2560]) {
    await assert.rejects(unpackArchive(pieces(whole.subarray(0, length)), target), /ended early/, String(length))
  }
  await assert.rejects(unpackArchive(pieces(Buffer.from('x'.repeat(600))), target), /damaged/)
  const endless = entry({ name: 'x', type: 'L' })
  endless.write('7'.repeat(11), 124)
  summed(endless)
  await assert.rejects(unpackArchive(pieces(endless), target), /name that is too long/)
})

test('unpack: whatever an archive says, it ends and writes nothing outside', async () => {
  const parts = ['a', 'b', '..', '.', '', 'outside', 'secret', '\0', '\\']
  const anyName = fc.array(fc.constantFrom(...parts), { minLength: 1, maxLength: 5 }).map((names) => names.join('/'))
  const anyEntry = fc.record({
    name: anyName,
    type: fc.constantFrom('0', '1', '2', '5', '6', 'S', 'x', 'L', 'K', '\0', '9'),
    link: fc.oneof(anyName, fc.constant(outside), fc.constant('../../outside')),
    content: fc.oneof(anyName, fc.constantFrom('', '20 path=../outside/x\n', '9 a=b\n')),
    mode: fc.nat(0o7777),
  })
  await fc.assert(
    fc.asyncProperty(
      fc.array(anyEntry, { maxLength: 8 }),
      fc.integer({ min: 1, max: 2000 }),
      async (entries, length) => {
        const bytes = Buffer.concat([...entries.map(entry), Buffer.alloc(1024)])
        await unpackArchive(pieces(bytes, length), target).catch((error: unknown) => assert.ok(error instanceof Error))
        await assertNothingOutside()
        await rm(target, { recursive: true, force: true })
      },
    ),
    { numRuns: 300 },
  )
})
