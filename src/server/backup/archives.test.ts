import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname } from 'node:path'
import { after, test } from 'node:test'
import { archiveFiles, extractFiles } from './archives.ts'
import { BackupFolder } from './folder.ts'

const root = await mkdtemp(`${tmpdir()}/atoll-archives-`)
after(() => rm(root, { recursive: true }))

test('backup archive: logs of ended builds are in it, those that grow are not', async () => {
  const files = {
    identity: 'id',
    'build-logs/ended/org/img-1/0': 'first',
    'build-logs/ended/org/img-1/5242880': 'last',
    'build-logs/running/org-hash/0': 'grows',
  }
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(`${root}/data/${name}`), { recursive: true })
    await writeFile(`${root}/data/${name}`, text)
  }
  await using folder = await BackupFolder.forBackup(`${root}/backup`)
  const part = await archiveFiles(folder, `${root}/data`, new AbortController().signal)
  await mkdir(`${root}/restored`)
  await extractFiles(folder.file(part), `${root}/restored`)
  const restored = (await readdir(`${root}/restored`, { recursive: true, withFileTypes: true })).filter((it) =>
    it.isFile(),
  )
  const texts = await Promise.all(restored.map(({ parentPath, name }) => readFile(`${parentPath}/${name}`, 'utf8')))
  assert.deepEqual(texts.toSorted(), ['first', 'id', 'last'])
})
