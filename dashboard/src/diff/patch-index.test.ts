import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync, chmodSync, renameSync, mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { readFilePatch } from './file-patch.ts'
import { indexPatch } from './patch-index.ts'

/** A patch of git between two states of a folder. */
function patchBetween(before: (folder: string) => void, after: (folder: string) => void): string {
  const folder = mkdtempSync(join(tmpdir(), 'patch-index-'))
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', '-c', 'commit.gpgsign=false', ...args], {
      cwd: folder,
      encoding: 'utf8',
      maxBuffer: 1 << 28,
      stdio: ['ignore', 'pipe', 'ignore'],
    })
  try {
    git('init')
    before(folder)
    git('add', '-A')
    git('commit', '--allow-empty', '-m', 'before')
    after(folder)
    git('add', '-A')
    return git('diff', '--cached', '-M', '--full-index', '--src-prefix=a/', '--dst-prefix=b/')
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** In parts of a few bytes, so that lines and characters are cut everywhere. */
function inParts(text: string, size: number): ReadableStream<Uint8Array> {
  const bytes = new TextEncoder().encode(text)
  let at = 0
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close()
      controller.enqueue(bytes.subarray(at, at + size))
      at += size
    },
  })
}

const patch = patchBetween(
  (folder) => {
    writeFileSync(join(folder, 'changed.txt'), 'one\n-- two\nthree\n')
    writeFileSync(join(folder, 'gone file'), 'x\n')
    writeFileSync(join(folder, 'old ä.txt'), 'a\nb\nc\nd\ne\nf\n')
    writeFileSync(join(folder, 'mode.sh'), 'echo\n')
    writeFileSync(join(folder, 'picture'), Buffer.from([0, 1, 2]))
  },
  (folder) => {
    writeFileSync(join(folder, 'changed.txt'), 'one\n++ two\nthree')
    rmSync(join(folder, 'gone file'))
    renameSync(join(folder, 'old ä.txt'), join(folder, 'new\n"ü".txt'))
    chmodSync(join(folder, 'mode.sh'), 0o755)
    writeFileSync(join(folder, 'picture'), Buffer.from([0, 3]))
    mkdirSync(join(folder, 'a b'))
    writeFileSync(join(folder, 'a b/c d'), '')
  },
)

for (const size of [1, 7, 1 << 20])
  test(`a patch of git: each file with its name, change, modes and lines, in parts of ${size} bytes`, async () => {
    const { files, isCut } = await indexPatch(inParts(patch, size))
    assert.equal(isCut, false)
    const about = files.map(({ start: _start, end: _end, ...file }) => file)
    assert.deepEqual(about, [
      { path: 'a b/c d', change: 'added', isBinary: false, addedLines: 0, removedLines: 0, newMode: '100644' },
      { path: 'changed.txt', change: 'modified', isBinary: false, addedLines: 2, removedLines: 2 },
      { path: 'gone file', change: 'deleted', isBinary: false, addedLines: 0, removedLines: 1, oldMode: '100644' },
      ...[{ path: 'mode.sh', change: 'modified', isBinary: false, addedLines: 0, removedLines: 0 } as const].map(
        (file) => ({ ...file, oldMode: '100644', newMode: '100755' }),
      ),
      {
        ...{ path: 'new\n"ü".txt', oldPath: 'old ä.txt', change: 'renamed', isBinary: false },
        ...{ addedLines: 0, removedLines: 0 },
      },
      { path: 'picture', change: 'modified', isBinary: true, addedLines: 0, removedLines: 0 },
    ])
  })

test('the lines of a file: a line that looks like a head is a line, and a missing newline is told', async () => {
  const index = await indexPatch(patch)
  const changed = index.files.find(({ path }) => path === 'changed.txt')
  assert.ok(changed)
  const { parts, notes } = await readFilePatch(index, changed)
  const lines = parts.flatMap(({ changes }) => changes.map(({ type, content }) => `${type} ${content}`))
  assert.deepEqual(lines, ['normal one', 'delete -- two', 'delete three', 'insert ++ two', 'insert three'])
  assert.deepEqual(notes, ['The last line has no newline at its end.'])
})

test('a patch that the server has cut: its last line is none of the file, and counts as the end', async () => {
  const cut = `${patch.slice(0, patch.indexOf('++ two'))}\n\\ The patch ends here: it is longer than 67108864 bytes.\n`
  const index = await indexPatch(cut)
  assert.equal(index.isCut, true)
  const last = index.files.at(-1)
  assert.ok(last)
  assert.equal(last.path, 'changed.txt')
  const { notes } = await readFilePatch(index, last)
  assert.deepEqual(notes, [])
})

test('a line of a megabyte is cut, a file of many lines too, and what cannot be seen is written out', async () => {
  const long = patchBetween(
    () => undefined,
    (folder) => {
      writeFileSync(join(folder, 'long'), `${'x'.repeat(1 << 20)}\na\u202eb\n`)
      writeFileSync(join(folder, 'many'), 'line\n'.repeat(60_000))
    },
  )
  const index = await indexPatch(inParts(long, 4096))
  const [one, many] = index.files
  assert.ok(one && many)
  assert.equal(many.addedLines, 60_000)
  const { parts } = await readFilePatch(index, one)
  const [first, second] = parts.flatMap(({ changes }) => changes.map(({ content }) => content))
  assert.ok((first ?? '').length < 2100)
  assert.match(first ?? '', /1046576 more characters/)
  assert.equal(second, String.raw`a\u202eb`)
  const manyPatch = await readFilePatch(index, many)
  assert.equal(
    manyPatch.parts.reduce((sum, { changes }) => sum + changes.length, 0),
    50_000,
  )
  assert.match(manyPatch.notes.join(), /too long/)
})
