import assert from 'node:assert/strict'
import { test } from 'node:test'
import { argvsOf, assertRefused, evaluated } from './testing/evaluated.ts'

const shell = (text: string): string[] => ['/bin/sh', '-c', text]

test('directives: escape is ` only when it stands before all else', () => {
  assert.deepEqual(argvsOf('# escape=`\nFROM a\nRUN echo `\n  b \\\nRUN c'), [shell('echo   b \\'), shell('c')])
  assert.deepEqual(argvsOf('#EScape = `  \n# syntax=docker/dockerfile:1\n\nFROM a\nRUN b `\nc'), [shell('b c')])
  assert.deepEqual(argvsOf('# a comment\n# escape=`\nFROM a\nRUN b \\\nc'), [shell('b c')])
  assert.deepEqual(argvsOf('\n# escape=`\nFROM a\nRUN b \\\nc'), [shell('b c')])
  assert.deepEqual(argvsOf('# unknown=x\n# escape=`\nFROM a\nRUN b \\\nc'), [shell('b c')])
  assert.deepEqual(argvsOf('#!/usr/bin/env build\n# escape=`\nFROM a\nRUN b `\nc'), [shell('b c')])
})

test('directives: one that stands twice, or another escape, is refused', () => {
  assertRefused('# escape=\\\n# escape=`\nFROM a', 2, /second # escape/)
  assertRefused('# syntax=a\n# Syntax=b\nFROM a', 2, /second # syntax/)
  assertRefused('# check=skip=all\n# escape=x\nFROM a', 2, /escape takes/)
})

test('directives: the syntax of another program is told, and has no effect', () => {
  assert.deepEqual(evaluated('# syntax=docker/dockerfile:1.7-labs\nFROM a').warnings, [])
  assert.match(evaluated('# check=skip=all\n# syntax=example.com/x:1\nFROM a').warnings.join(), /line 2: # syntax/)
})

test('lines: names in any case, blanks before them, comments, a mark of the byte order', () => {
  assert.deepEqual(argvsOf("\uFEFF from a\n  # comment\n\trun echo 'some # of things'\n \n"), [
    shell("echo 'some # of things'"),
  ])
  assert.deepEqual(argvsOf('FROM a\r\nRUN b \\\r\n  c\r\n'), [shell('b   c')])
})

test('lines: one goes on behind the escape, over comments and blank lines', () => {
  assert.deepEqual(argvsOf('FROM a\nRUN echo hello \\\n# comment\n\n  \t\nworld\nRUN b'), [
    shell('echo hello world'),
    shell('b'),
  ])
  assert.deepEqual(argvsOf('FROM a\nRUN echo "\\\n     hello\\\n     world"'), [shell('echo "     hello     world"')])
  assert.deepEqual(argvsOf('FROM a\nRUN b \\ \t \n c'), [shell('b  c')])
  assert.deepEqual(argvsOf('FROM a\nRUN b \\'), [shell('b')])
  assert.deepEqual(argvsOf('FROM a\n\\\n\\\nRUN b'), [shell('b')])
  // A doubled one is text, and a comment does not go on.
  assert.deepEqual(argvsOf('FROM a\nRUN b \\\\\nRUN c'), [shell('b \\\\'), shell('c')])
  assert.deepEqual(argvsOf('FROM a\n# comment \\\nRUN c'), [shell('c')])
})

test('lines: an instruction has the number of its first line', () => {
  const { operations } = evaluated('\n# c\nFROM a\nRUN a \\\n # d\n\n  b\n\nRUN <<E\nx\n\nE\nCOPY x /y\nWORKDIR z')
  assert.deepEqual(
    operations.map(({ type, line, summary }) => [type, line, summary]),
    [
      ['run', 4, 'RUN a b'],
      ['run', 9, 'RUN <<E (x…)'],
      ['copy', 13, 'COPY x /y'],
      ['workdir', 14, 'WORKDIR z'],
    ],
  )
})

test('lines: what is no instruction is refused with the nearest one', () => {
  assertRefused('FROM a\nRUNN b', 2, /"RUNN" is no instruction; did you mean RUN\?/)
  assertRefused('FORM a', 1, /did you mean FROM\?/)
  assertRefused('FROM a\n"RUN" b', 2, /begins with no instruction/)
  assertRefused('FROM a\n\nRUN\tb\n  && c', 4, /begins with no instruction/)
  assertRefused('FROM a\nONBUILD RUN b', 2, /ONBUILD is not supported/)
  assertRefused('FROM a\nRUN b\0', 2, /zero byte/)
})

test('heredoc: one alone is the program of the shell', () => {
  assert.deepEqual(argvsOf('FROM a\nRUN <<EOF\nset -e\n  # not a comment\nb $X \\\n\nEOF\nRUN c'), [
    shell('set -e\n  # not a comment\nb $X \\\n\n'),
    shell('c'),
  ])
  assert.deepEqual(argvsOf('FROM a\nSHELL ["/bin/bash", "-ec"]\nRUN 3<<"E O"\nx\nE O'), [['/bin/bash', '-ec', 'x\n']])
  assert.deepEqual(argvsOf("FROM a\nRUN <<-'EOF'\n\t\tb\n\t  c\n\tEOF"), [shell('b\n  c\n')])
  assert.deepEqual(argvsOf('FROM a\nRUN << EOF\nb\nEOF'), [shell('b\n')])
  assert.deepEqual(argvsOf('FROM a\nRUN <<E\nE'), [shell('')])
})

test('heredoc: one with a shebang is a file', () => {
  const text = 'FROM a\nRUN --mount=type=cache,target=/c <<-EOF\n\t#!/usr/bin/env python3\n\tprint(1)\n\tEOF'
  const [operation] = evaluated(text).operations
  assert.ok(operation?.type === 'run')
  assert.deepEqual([operation.argv, operation.script], [shell('').slice(0, 2), '#!/usr/bin/env python3\nprint(1)\n'])
})

test('heredoc: one in a command is left to the shell', () => {
  assert.deepEqual(argvsOf('FROM a\nRUN python3 <<EOF\nprint(1)\nEOF'), [shell('python3 <<EOF\nprint(1)\nEOF')])
  assert.deepEqual(argvsOf('FROM a\nRUN <<A cat > a && <<-"B" cat > b\nfirst\nA\n\tsecond\n\tB\nRUN c'), [
    shell('<<A cat > a && <<-"B" cat > b\nfirst\nA\n\tsecond\nB'),
    shell('c'),
  ])
  // The first one has the name of the second in it.
  assert.deepEqual(argvsOf('FROM a\nRUN cat <<X <<Y\nY\nX\nX\nY'), [shell('cat <<X <<Y\nY\nX\nX\nY')])
})

test('heredoc: quotes, here-strings, shifts and lists are none', () => {
  for (const command of [
    'echo "<<EOF"',
    "echo '<<EOF'",
    'cat <<< word',
    'echo $((1<<2)) $(( 1 << 2 )) $((1 <<3))',
    'cat<<EOF',
  ])
    assert.deepEqual(argvsOf(`FROM a\nRUN ${command}\nRUN b`), [shell(command), shell('b')])
  assert.deepEqual(argvsOf('FROM a\nRUN ["echo", "<<EOF"]'), [['echo', '<<EOF']])
  assertRefused('FROM a\nUSER <<EOF\nEOF', 3, /"EOF" is no instruction/)
})

test('heredoc: one without an end is refused where it begins', () => {
  assertRefused('FROM a\nRUN x\nCOPY <<A <<B /c/\na\nA\nb', 3, /the heredoc "B" has no end/)
  assertRefused('FROM a\nRUN <<"EOF\nEOF', 2, /without an end/)
  assertRefused('FROM a\nRUN <<EOF\n EOF\nEOF ', 2, /"EOF" has no end/)
})

test('text: a bound for bytes, instructions and stages', () => {
  assertRefused(`FROM a\n#${'é'.repeat(600_000)}`, 1, /more than 1048576 bytes/)
  assertRefused(`FROM a\n${'RUN b\n'.repeat(1000)}`, 1001, /more than 1000 instructions/)
  assertRefused('FROM a\n'.repeat(101), 101, /more than 100 stages/)
  const lines = 20_000
  assert.equal(argvsOf(`FROM a\nRUN b${' \\\n  x'.repeat(lines)}`)[0]![2]!.length, 1 + 4 * lines)
})
