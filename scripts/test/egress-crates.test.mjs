import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

const folder = join(import.meta.dirname, '../../egress')
const own = 'atoll-egress'

test('the list of crates of the egress proxy has all that cargo takes, and no others', async () => {
  const lock = await readFile(join(folder, 'Cargo.lock'), 'utf8').catch(() => '')
  assert.notEqual(lock, '', 'npm run setup makes the lock file')
  const needed = [...lock.matchAll(/^name = "(.+)"\nversion = "(.+)"$/gm)]
    .filter(([, name]) => name !== own)
    .map(([, name, version]) => `${name} ${compatible(version)}`)
  const listed = (await readFile(join(folder, 'debian-crates'), 'utf8'))
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
  assert.deepEqual(listed, needed.toSorted())
})

/** The part of a version that compatible ones share, as cargo and Debian's names of packages have it. */
function compatible(version) {
  const [major, minor] = version.split('.')
  return major === '0' ? `0.${minor}` : major
}
