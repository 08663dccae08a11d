/** Archives that other programs make, and folders that other builders have stumbled over. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { link, mkdir, mkdtemp, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { after, test } from 'node:test'
import { promisify } from 'node:util'
import type { ContextFile } from '../../protocol/http/images.ts'
import { contextsIn, file, symlink as symlinkTo } from './testing/kit.ts'

const run = promisify(execFile)
const top = await mkdtemp(join(tmpdir(), 'atoll-archives-'))
after(() => rm(top, { recursive: true }))

const folder = join(top, 'folder')
/** moby#10815 (`..` in a name), a newline, a backslash, names of tars' own fields and beyond them, no name of UTF-8 in NFC. */
const names = [
  '..gitignore.un~',
  'with\nnewline',
  'with\\backslash',
  ' space ',
  'e\u0301',
  'deep/er/file',
  `long/${'n'.repeat(255)}`,
  `${'d/'.repeat(60)}end`,
  'empty',
  '...',
  '@LongLink',
  'PaxHeaders/x',
  'hard',
]
const files: ContextFile[] = []
for (const name of names) {
  const content = name === 'empty' ? '' : `content of ${name}`
  await mkdir(dirname(join(folder, name)), { recursive: true })
  await writeFile(join(folder, name), content)
  files.push(file(name, content))
}
await link(join(folder, 'hard'), join(folder, 'linked'))
files.push({ ...files.at(-1)!, path: 'linked' })
await symlink('/etc/passwd', join(folder, 'out'))
files.push(symlinkTo('out', '/etc/passwd'))
await run('mkfifo', [join(folder, 'pipe')])
await truncate(join(folder, 'empty'), 0)

async function tarOf(...args: string[]): Promise<Readable> {
  const argv = ['--create', ...args, '--directory', folder, '.']
  return Readable.from([(await run('tar', argv, { encoding: 'buffer' })).stdout])
}

let count = 0
const contexts = () => contextsIn(join(top, `contexts-${++count}`))

for (const args of [
  ['--format=gnu'],
  ['--format=pax'],
  ['--format=posix', '--pax-option=delete=mtime,globexthdr.name=/global,comment=all'],
  ['--format=gnu', '--gzip'],
  ['--format=pax', '--zstd'],
  ['--format=gnu', '--sort=inode', '--blocking-factor=1'],
]) {
  test(`contexts: what tar ${args.join(' ')} makes of odd names is taken`, async () => {
    const kept = contexts()
    const { id } = await kept.create('org_1', files)
    const { missing, ignored } = await kept.upload('org_1', id, await tarOf(...args))
    assert.deepEqual([missing, ignored], [[], 1], 'the pipe')
    using context = await kept.open('org_1', id)
    for (const name of [...names, 'linked']) {
      const path = `/${Buffer.from(name).toString('latin1')}`
      assert.deepEqual(await buffer(context.read(path)), await readFile(join(folder, name)), name)
    }
  })
}

test('contexts: tar unpacks what they pack', async () => {
  const kept = contexts()
  const { id } = await kept.create('org_1', files)
  await kept.upload('org_1', id, await tarOf())
  using context = await kept.open('org_1', id)
  const target = join(top, 'target')
  await mkdir(target)
  await writeFile(join(top, 'packed.tar'), context.pack([{ path: '/', name: '' }]))
  await run('tar', ['--extract', '--file', join(top, 'packed.tar'), '--directory', target])
  await run('diff', ['--recursive', '--no-dereference', '--exclude=pipe', folder, target])
})
