import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { after, test } from 'node:test'
import { refuses } from '../../lib/testing/refuses.ts'
import { BackupFolder } from './folder.ts'
import { formatNumber, type Manifest, manifestText, readManifest } from './manifest.ts'

const root = await mkdtemp(`${tmpdir()}/atoll-backup-`)
after(() => rm(root, { recursive: true }))
const { signal } = new AbortController()
const reading = async (text: string) => readManifest(text, 'DIR')
const shell = (script: string) => ['sh', '-c', script] as const

async function manifestOf(folder: BackupFolder): Promise<Manifest> {
  const write = (name: string) => folder.write(folder.freshName(name), name)
  const facts = { format: formatNumber, atoll: '1', installation: 'i', host: 'h', createdAt: new Date(0).toISOString() }
  const parts = { files: await write('files'), records: await write('records') }
  const database = { ...(await write('database')), major: 15 }
  return { ...facts, ...parts, database, images: {}, streams: {}, subvolumes: {}, unreadable: {} } as Manifest
}

test('backup folder: all that a program prints is in its part, also where the program ends at once', async () => {
  await using folder = await BackupFolder.forBackup(`${root}/output`)
  for (let turn = 0; turn < 20; turn += 1) {
    const part = await folder.writeOutput(folder.freshName('streams/a'), shell('printf words'), { signal })
    assert.equal(part.bytes, 5)
    assert.equal(await readFile(folder.file(part), 'utf8'), 'words')
  }
})

test('backup folder: a program that fails, prints nothing or is stopped leaves no part', async () => {
  await using folder = await BackupFolder.forBackup(`${root}/failures`)
  await refuses(
    folder.writeOutput('streams/a', shell('echo part; echo why >&2; exit 1'), { signal }),
    'unavailable',
    /sh: why/,
  )
  await refuses(folder.writeOutput('streams/a', shell('true'), { signal }), 'unavailable', /printed nothing/)
  await refuses(folder.writeOutput('streams/a', ['/no/program'], { signal }), 'unavailable', /ENOENT/)
  const stopped = AbortSignal.abort(new Error('stopped'))
  await assert.rejects(folder.writeOutput('streams/a', shell('echo part'), { signal: stopped }), /stopped/)
  await folder.abandon()
  assert.deepEqual(await readdir(`${folder.path}/streams`), [])
})

test('backup folder: a failure before the manifest has its name keeps the parts before, one after it the new ones', async () => {
  await using folder = await BackupFolder.forBackup(`${root}/commits`)
  const first = await manifestOf(folder)
  await folder.commit(first)
  await manifestOf(folder)
  await folder.abandon()
  await folder.verify(first)
  assert.equal((await readdir(folder.path)).length, 6)
  const second = await manifestOf(folder)
  await folder.commit(second)
  await folder.abandon()
  await folder.verify(second)
  assert.equal((await readdir(folder.path)).length, 6)
})

test('manifest: it says what it says, and names of parts lead nowhere else', async () => {
  await using folder = await BackupFolder.forBackup(`${root}/names`)
  const manifest = await manifestOf(folder)
  assert.deepEqual(readManifest(manifestText(manifest), 'x'), manifest)
  for (const file of ['../x', '/etc/passwd', 'streams/../x', 'other/x', 'streams/.x', '']) {
    const text = manifestText({ ...manifest, files: { ...manifest.files, file } })
    await refuses(reading(text), 'conflict', /DIR is damaged: .*files\.file/)
  }
  for (const path of ['sandboxes/..', 'layers/a/b', '/x', 'templates/1']) {
    const subvolumes = { [path]: { id: '0'.repeat(16), uuid: 'u', generation: 1, isReadOnly: true } }
    await refuses(reading(manifestText({ ...manifest, subvolumes })), 'conflict', /damaged/)
  }
})
