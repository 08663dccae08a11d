import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ComparedFile } from '../../sdk/src/index.ts'
import { widthOf } from './output.ts'
import { patchText, statText } from './patch-output.ts'

const patch = `diff --git a/a.sql b/a.sql
index 1..2 100644
--- a/a.sql
+++ b/a.sql
@@ -1,3 +1,3 @@ create
 keep
--- a comment
+++ one more
 last
\\ No newline at end of file
diff --git a/b b/b
deleted file mode 100644
--- a/b
+++ /dev/null
@@ -1 +0,0 @@
-x
`

async function shown(text: string, pieceBytes: number, terminal = { isTerminal: true, hasColors: true }) {
  const bytes = Buffer.from(text)
  async function* pieces() {
    for (let at = 0; at < bytes.length; at += pieceBytes) yield bytes.subarray(at, at + pieceBytes)
  }
  const parts = await Array.fromAsync(patchText(pieces(), terminal))
  return parts.map((part) => (typeof part === 'string' ? part : Buffer.from(part).toString())).join('')
}

/** The style of each line, and its text. */
function stylesOf(text: string): [style: string | undefined, text: string | undefined][] {
  return text
    .trimEnd()
    .split('\n')
    .map((line) => {
      // eslint-disable-next-line no-control-regex
      const [, style, inner] = /^\u001b\[(\d+)m(.*)\u001b\[0m$/.exec(line) ?? []
      return [style, inner ?? line]
    })
}

test('patch: the lines of hunks have the colours of git, whatever they begin with, in pieces of any size', async () => {
  for (const pieceBytes of [1, 7, 1000]) {
    const lines = stylesOf(await shown(patch, pieceBytes))
    assert.deepEqual(
      lines.map(([, text]) => text),
      patch.trimEnd().split('\n'),
    )
    const styles = lines.map(([style]) => style)
    assert.deepEqual(styles.slice(0, 10), ['1', '1', '1', '1', '36', undefined, '31', '32', undefined, undefined])
    assert.deepEqual(styles.slice(10), ['1', '1', '1', '1', '36', '31'])
  }
})

test('patch: for a terminal it is printable, for a program as it is', async () => {
  const hostile = '@@ -1 +1 @@\n-a\u001b[2J\u202e\r\n+b\u009b31m\n'
  const plain = await shown(hostile, 3, { isTerminal: true, hasColors: false })
  assert.equal(plain, '@@ -1 +1 @@\n-a\\x1b[2J\\u202e\\x0d\n+b\\x9b31m\n')
  assert.equal(await shown(hostile, 3, { isTerminal: false, hasColors: false }), hostile)
  assert.equal(await shown('', 3), '')
})

test('patch: a line of any length is printed in parts of one colour', async () => {
  const text = await shown(`@@ -0,0 +1 @@\n+${'x'.repeat(200_000)}`, 10_000)
  // eslint-disable-next-line no-control-regex
  const parts = [...text.matchAll(/\u001b\[(\d+)m([^\u001b]*)\u001b\[0m/g)]
  assert.ok(parts.length > 3)
  assert.ok(parts.slice(1).every(([, style]) => style === '32'))
  assert.equal(parts.map(([, , part]) => part).join('').length, '@@ -0,0 +1 @@'.length + 200_001)
})

function file(path: string, addedLines: number, removedLines: number, more: Partial<ComparedFile> = {}): ComparedFile {
  return { path, change: 'modified', isBinary: false, addedLines, removedLines, ...more }
}

test('stat: files with their lines, binary and renamed ones, and the sum', () => {
  const files = [
    file('app/index.html', 3, 1),
    file('logo.png', 0, 0, { isBinary: true }),
    file('new', 0, 0, { change: 'renamed', oldPath: 'old' }),
  ]
  const text = statText({ files, addedLines: 3, removedLines: 1, isCut: false })
  assert.equal(
    text,
    [
      ' app/index.html | 4 +++-',
      ' logo.png       | Bin',
      ' old => new     | 0',
      ' 3 files changed, 3 insertions(+), 1 deletion(-)',
    ].join('\n'),
  )
  assert.equal(statText({ files: [], addedLines: 0, removedLines: 0, isCut: false }), '')
  const cut = statText({ files: files.slice(0, 1), addedLines: 9000, removedLines: 1, isCut: true })
  assert.match(cut, / 1 and more files changed, 9000 insertions/)
})

test('stat: it keeps to the terminal, and paths do not steer it', () => {
  const files = [file('界'.repeat(90), 100_000, 5), file('a\u001b[2J\nb', 1, 1)]
  const text = statText({ files, addedLines: 1, removedLines: 1, isCut: false }, { widthMax: 80 })
  assert.equal(text.split('\n').length, 3)
  for (const line of text.split('\n')) assert.ok(widthOf(line) <= 80, line)
  assert.ok(text.includes('a\\x1b[2J b'))
})
