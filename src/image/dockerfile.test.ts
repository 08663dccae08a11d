import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../errors.ts'
import { manifestOf } from './dockerfile.ts'

test('dockerfile: each instruction becomes a step, in its folder and as its user', () => {
  const manifest = manifestOf(`# a comment
FROM python

ENV A=1 B="two words" C='$A' D=$A
RUN echo one \\
  # not part of it
  && echo two
WORKDIR app/sub
user 1000
RUN ["printf", "%s", "it's"]
COPY <<-"EOF" conf/$B.txt
\tfirst
\t  second
\tEOF
RUN <<EOF
set -x
true
EOF
EXPOSE 80
CMD ["server"]
`)
  assert.deepEqual(manifest, {
    base: 'python',
    steps: [
      { type: 'env', args: { vars: { A: '1', B: 'two words', C: '$A', D: '' } } },
      { type: 'run', args: { commands: ['echo one   && echo two'] } },
      { type: 'workdir', args: { path: '/app/sub' } },
      { type: 'run', args: { commands: ["'printf' '%s' 'it'\\''s'"], cwd: '/app/sub', user: '1000' } },
      {
        type: 'add_file',
        args: { path: '/app/sub/conf/two words.txt', content: Buffer.from('first\n  second\n').toString('base64') },
      },
      { type: 'run', args: { commands: ['set -x\ntrue\n'], cwd: '/app/sub', user: '1000' } },
    ],
    defaults: { envs: { A: '1', B: 'two words', C: '$A', D: '' }, cwd: '/app/sub', user: '1000' },
  })
})

test('dockerfile: what is not known is refused with its line', () => {
  const cases: [string, RegExp][] = [
    ['', /line 1: there is no FROM/],
    ['RUN true', /line 1: the first instruction must be FROM/],
    ['FROM base\nFROM base', /line 2: a second FROM/],
    ['FROM docker.io/library/debian', /line 1: FROM takes the name/],
    ['FROM base AS build', /line 1: FROM takes the name/],
    ['FROM base\n\nADD x y', /line 3: ADD is not supported/],
    ['FROM base\nENTRYPOINT ["x"]', /line 2: ENTRYPOINT/],
    ['FROM base\nCOPY a b', /line 2: COPY takes a heredoc/],
    ['FROM base\nCOPY <<EOF /a/\nx\nEOF', /line 2: COPY of a heredoc takes the path of a file/],
    ['FROM base\nCOPY <<EOF /a\nx', /line 2: the heredoc EOF has no end/],
    ['FROM base\nRUN --mount=type=cache true', /line 2: RUN takes no options/],
    ['FROM base\nRUN ["a", 1]', /line 2: a list of words/],
    ['FROM base\nENV A=1 B', /line 2: ENV takes/],
    ['FROM base\nUSER a b', /line 2: USER takes/],
    ['FROM base\n"quoted', /line 2: not an instruction/],
  ]
  for (const [text, why] of cases) {
    assert.throws(
      () => manifestOf(text),
      (error: Error) => isServiceError(error, 'invalid_request') && why.test(error.message),
      text,
    )
  }
})

test('dockerfile: what is made of it is bounded, and so is the work', () => {
  const doubled = `FROM base\nENV A=0123456789\n${'ENV A=$A$A\n'.repeat(24)}`
  const cases: [string, RegExp][] = [
    [`${doubled}ENV ${Array.from({ length: 60 }, (_, at) => `B${at}=$A`).join(' ')}`, /line 18: variables stand for/],
    [`FROM base\nENV A=${'x'.repeat(30_000)}\n${'RUN true\nENV B=$A\n'.repeat(40)}`, /variables stand for more/],
    [`FROM base\nENV A=${'x/'.repeat(2000)}\n${'WORKDIR $A\n'.repeat(3)}`, /line 4: a path is longer/],
    [`FROM base\n${'WORKDIR some/folder\n'.repeat(900)}`, /a path is longer/],
    [`FROM base\n${'\n'.repeat(30_000)}`, /more than 20000 lines/],
    [`FROM base\n${'RUN true\n'.repeat(1001)}`, /more than 1000 instructions/],
    [`FROM base\nENV A="${'\\"'.repeat(15_000)}`, /line 2: ENV takes/],
    [`FROM base\nENV A='${'"'.repeat(30_000)}`, /line 2: ENV takes/],
    [`FROM base\nENV A=${'""'.repeat(20_000)}`, /line 2: variables, lists and paths have more than 32768/],
    [`FROM base\n${`ENV A=${'x'.repeat(1000)}\n`.repeat(40)}`, /line 34: variables, lists and paths/],
    [`FROM base\nRUN ["${'","'.repeat(20_000)}"]`, /line 2: variables, lists and paths/],
  ]
  for (const [text, why] of cases) {
    assert.throws(
      () => manifestOf(text),
      (error: Error) => isServiceError(error, 'invalid_request') && why.test(error.message),
      text.slice(0, 80),
    )
  }
  // A long instruction of many lines is read once, and not again with each of its lines.
  const continued = manifestOf(`FROM base\nRUN true${` \\\n  ${'x'.repeat(40)}`.repeat(19_000)}`)
  const [run] = continued.steps ?? []
  assert.ok(run?.type === 'run')
  assert.equal(run.args.commands[0]!.length, 4 + 19_000 * 43)
})

test('dockerfile: ENV takes quotes, escapes and names of objects', () => {
  const text = String.raw`FROM base
ENV A=a\ b"c\"d"'e"f' B=$constructor
ENV C=$A
ENV D   two words
ENV E= F=""
`
  assert.deepEqual(manifestOf(text).defaults?.envs, {
    A: `a bc"de"f`,
    B: '',
    C: `a bc"de"f`,
    D: 'two words',
    E: '',
    F: '',
  })
})
