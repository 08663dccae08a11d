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
