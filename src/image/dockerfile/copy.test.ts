import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { CopyOperation, CopySource } from './index.ts'
import { assertRefused, evaluated } from './testing/evaluated.ts'

function copyOf(text: string, before = ''): CopyOperation {
  const [operation] = evaluated(`FROM a\n${before}${text}`).operations.slice(-1)
  assert.ok(operation?.type === 'copy' || operation?.type === 'add')
  return operation
}
const patternsOf = (sources: readonly CopySource[]) =>
  sources.map((source) => ('pattern' in source ? source.pattern : source))

test('COPY: sources and target, as words or as a list', () => {
  assert.deepEqual(copyOf('COPY src/*.png  a[[]0].txt\t/dest/'), {
    type: 'copy',
    line: 2,
    summary: 'COPY src/*.png a[[]0].txt /dest/',
    sources: [{ pattern: 'src/*.png' }, { pattern: 'a[[]0].txt' }],
    target: '/dest/',
    excludes: [],
    keepsParents: false,
    unpacks: false,
  })
  const { sources, target } = copyOf('COPY ["a b", "$V", "/c d/"]', 'ENV V="x y"\n')
  assert.deepEqual([patternsOf(sources), target], [['a b', 'x y'], '/c d/'])
  assert.deepEqual(patternsOf(copyOf(`COPY "a" 'b' c\\$V \\$FOO /d/`, 'ENV V=1\n').sources), ['a', 'b', 'c$V', '$FOO'])
  assert.deepEqual(patternsOf(copyOf("COPY ['a', 'b']  /d/").sources), ['[a,', 'b]'])
})

test('COPY: the target is absolute, with its slash when it is a folder for sure', () => {
  const targetOf = (target: string) => copyOf(`COPY a ${target}`, 'WORKDIR /w\nENV T=t/\n').target
  assert.deepEqual(
    ['/a', '/a/', 'a', 'a/', '.', './', '..', '../x', '/', '$T', 'a/.', 'a/..', '/a/./b//', 'x.'].map(targetOf),
    ['/a', '/a/', '/w/a', '/w/a/', '/w/', '/w/', '/', '/x', '/', '/w/t/', '/w/a/', '/w/', '/a/b/', '/w/x.'],
  )
})

test('COPY: flags, with variables where they have some', () => {
  const operation = copyOf(
    'COPY --from=Build --chown=$U:group --chmod=${M} --exclude=*.$E --exclude="b c" --link --parents=true ./x/./y/*.txt /p/',
    'ARG U=me M=0640 E=md\n',
  )
  assert.deepEqual(
    { ...operation, summary: '' },
    {
      type: 'copy',
      line: 3,
      summary: '',
      from: 'Build',
      sources: [{ pattern: './x/./y/*.txt' }],
      target: '/p/',
      owner: 'me:group',
      mode: '0640',
      excludes: ['*.md', 'b c'],
      keepsParents: true,
      unpacks: false,
    },
  )
  for (const mode of ['755', '+x', 'g=u', 'u=rwX,go=rX', 'u=rw,g-w+x,o=', 'a+s'])
    assert.equal(copyOf(`COPY --chmod=${mode} a b`).mode, mode)
  for (const owner of ['1000', 'a:b', 'a:', ':b']) assert.equal(copyOf(`COPY --chown=${owner} a b`).owner, owner)
  assert.equal(copyOf('COPY --chown=$NONE --parents=false a b').owner, undefined)
})

test('ADD: archives are unpacked unless it says otherwise, and nothing is fetched', () => {
  assert.equal(copyOf('ADD a.tar.gz /b').unpacks, true)
  assert.equal(copyOf('ADD --unpack=false a.tar.gz /b').unpacks, false)
  assert.equal(copyOf('ADD --unpack a.tar.gz /b').unpacks, true)
  for (const source of ['https://a.b/c', 'http://a.b/c', 'git@a.b:c/d.git', 'HTTPS://a.b/c', 'git://a.b/c', '$U'])
    assertRefused(`FROM a\nENV U=https://a.b/c\nADD ${source} /x`, 3, /remote source .* is not supported/)
  assertRefused('FROM a\nCOPY https://a.b/c /x', 2, /is nothing for COPY/)
})

test('COPY: heredocs are files, with their variables unless their word is quoted', () => {
  const text = 'COPY <<A <<-"B" <<\\C plain /d/\n$V "$V"\n  \\$V\nA\n\t\t$V\n\tB\n$V\nC'
  assert.deepEqual(copyOf(text, 'ENV V=1\n').sources, [
    { name: 'A', content: '1 "1"\n  $V\n' },
    { name: 'B', content: '$V\n' },
    { name: 'C', content: '$V\n' },
    { pattern: 'plain' },
  ])
  assert.deepEqual(copyOf('COPY <<EOF /f\nEOF').sources, [{ name: 'EOF', content: '' }])
  assert.deepEqual(copyOf('ADD <<file.txt /f\r\na\r\nfile.txt\r\n').sources, [{ name: 'file.txt', content: 'a\n' }])
})

test('COPY: what cannot be copied is refused', () => {
  const cases: [string, RegExp][] = [
    ['COPY', /COPY takes a source and a target/],
    ['COPY a', /COPY takes a source and a target/],
    ['COPY []', /COPY takes a source and a target/],
    ['COPY [1, "a"]', /something else than text/],
    ['COPY a b c', /target of COPY with several sources is a folder: "\/c\/"/],
    ['COPY a $NONE', /target is empty/],
    ['COPY $NONE a', /a source of COPY is empty/],
    ['COPY a <<EOF\nEOF', /target of COPY is a heredoc/],
    ['COPY <<"a/b" /x\na/b', /no name of a file/],
    ['COPY --chown=a:b:c a b', /--chown takes a name/],
    ['COPY --chown=: a b', /--chown takes a name/],
    ['COPY --chown=:a:b a b', /--chown takes a name/],
    ['COPY --chown=a/b a b', /--chown takes a name/],
    ['COPY --chmod=9 a b', /--chmod takes/],
    ['COPY --chmod=77777 a b', /--chmod takes/],
    ['COPY --chmod=u~x a b', /--chmod takes/],
    ['COPY --link=yes a b', /--link takes true or false/],
    ['COPY --fromm=x a b', /did you mean from/],
    ['COPY --checksum=x a b', /COPY has no flag "--checksum"/],
    ['ADD --checksum=sha256:x a b', /--checksum is for remote sources/],
    ['ADD --keep-git-dir a b', /--keep-git-dir is for remote sources/],
    ['ADD --from=x a b', /ADD has no flag "--from"/],
    [`COPY ${'a'.repeat(5000)} b`, /path is longer/],
    ['COPY "a b" c', /" has no end/],
    [`COPY ${'a '.repeat(5000)} b/`, /more than 5000 words/],
  ]
  for (const [instruction, why] of cases) assertRefused(`FROM a\n${instruction}`, 2, why)
})
