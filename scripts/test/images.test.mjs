import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, readlink, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'

const root = join(import.meta.dirname, '../..')

/** An image folder, and what runs functions of setup over it. */
async function makeImages(t) {
  const images = await mkdtemp(join(tmpdir(), 'atoll-setup-images-'))
  t.after(() => rm(images, { recursive: true }))
  const setup = async (commands) => {
    const script = `set -euo pipefail
      ATOLL_ROOT=${root}
      ATOLL_IMAGE_DIR=${images}
      source ${root}/scripts/setup/images.sh
      say() { echo "$*"; }
      made() { local new; new=$(new_image_folder); echo "$1" >"$new/file"; echo one >"$new/recipe"; publish_image "$new" thing; }
      ${commands}`
    const { stdout } = await promisify(execFile)('bash', ['--norc', '-c', script], { cwd: root })
    return stdout.trim()
  }
  const named = async () => (await readdir(images)).filter((name) => name.startsWith('thing-')).toSorted()
  return { images, setup, named, current: () => readlink(join(images, 'thing')) }
}

test('setup gives two images that were made by one recipe two names, and one of equal content its name again', async (t) => {
  const { images, setup, named, current } = await makeImages(t)
  await setup('made monday')
  const [monday] = await named()
  assert.match(monday, /^thing-[0-9a-f]{32}$/)
  await utimes(join(images, monday, 'file'), 0, 0)
  await setup('made tuesday')
  const tuesday = await current()
  assert.notEqual(tuesday, monday)
  assert.equal(await setup('image_made_by thing one'), tuesday.slice('thing-'.length), 'the current one comes first')
  await setup('made monday')
  assert.equal(await current(), monday)
  assert.deepEqual(new Set(await named()), new Set([monday, tuesday]))
  assert.equal(Number((await stat(join(images, monday, 'file'))).mtimeMs), 0, 'what was there stays')
  assert.equal(await setup('image_made_by thing two'), '')
})

test('setup puts a whole image in the place of one that was damaged', async (t) => {
  const { images, setup, named } = await makeImages(t)
  await setup('made monday')
  const [name] = await named()
  await writeFile(join(images, name, 'file'), 'else')
  await setup('made monday')
  assert.equal(await readFile(join(images, name, 'file'), 'utf8'), 'monday\n')
  assert.deepEqual(await named(), [name])
})
