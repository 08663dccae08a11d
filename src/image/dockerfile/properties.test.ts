import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { test } from 'node:test'
import fc from 'fast-check'
import { isServiceError } from '../../errors.ts'
import { ExpansionBudget } from './budget.ts'
import { expandWord } from './expand.ts'
import type { Operation } from './index.ts'
import { evaluated } from './testing/evaluated.ts'

const benign = ['a', 'b/c', '.', '$A', '${B:-c}', '"d e"', "'f $A'", '\\$', 'é🚀', '*.x', '${A#?}', '${A/a/b}']
const hostile = [
  '\\',
  '`',
  '"',
  "'",
  '${',
  '}',
  '${A:?',
  '=',
  ',',
  '<<',
  '<<-E',
  '[',
  '["a",',
  '--',
  '--x=',
  '--from=b',
  '\n',
  '\r',
  '\t',
  '\uD800',
  '\0',
  '#',
  '\u00A0',
]
/** With `_` for a word. */
const forms = [
  'RUN _ _',
  'RUN ["_", "_"]',
  'RUN --mount=type=cache,target=/_ _',
  'RUN --mount=from=b,target=_ _',
  'RUN <<E\n_\nE',
  'RUN cat <<E <<-"F"\n_\nE\n\t_\n\tF',
  'COPY _ /x/_',
  'COPY --chown=_ --exclude=_ --from=b _ /x/',
  'COPY <<E /x/_\n_\nE',
  'ADD _ _ ./',
  'WORKDIR _',
  'ENV A=_ B=_',
  'ENV A _',
  'ARG A=_ B',
  'LABEL a=_ "b"=_',
  'VOLUME _ _',
  'CMD _',
  'ENTRYPOINT ["_"]',
  'HEALTHCHECK --interval=1s CMD _',
  'USER _',
  'EXPOSE 80 90-92/_',
  'FROM _ AS b',
  'FROM b',
  '# _',
  'run \\\n# _\n\n_',
  '',
]

test('a text: it has a meaning or is refused with a line that it has', () => {
  const word = fc
    .array(
      fc.oneof(
        { weight: 40, arbitrary: fc.constantFrom(...benign) },
        { weight: 1, arbitrary: fc.constantFrom(...hostile) },
        { weight: 1, arbitrary: fc.string({ maxLength: 3 }) },
      ),
      { minLength: 1, maxLength: 3 },
    )
    .map((parts) => parts.join(''))
  const instruction = fc
    .tuple(fc.constantFrom(...forms), fc.array(word, { minLength: 4, maxLength: 4 }))
    .map(([form, words]) => form.replaceAll('_', () => words.pop() ?? ''))
  const buildArgs = fc.dictionary(fc.constantFrom('A', 'B', 'HTTP_PROXY'), fc.string())
  let evaluatedCount = 0
  const property = fc.property(fc.array(instruction, { maxLength: 8 }), buildArgs, (found, given) => {
    const dockerfile = ['FROM scratch AS a', ...found].join('\n')
    const lines = dockerfile.split('\n')
    try {
      const { operations } = evaluated(dockerfile, { buildArgs: given })
      if (operations.length > 1) evaluatedCount += 1
      // Each is told with the line on which its instruction begins.
      for (const { line, type } of operations) assert.match(lines[line - 1]!, new RegExp(`^\\s*${type}`, 'i'))
    } catch (error) {
      assert.ok(isServiceError(error, 'invalid_request'), String(error))
      if (error.details['field'] === 'buildArgs') return
      const line = error.details['line'] as number
      assert.ok(line >= 1 && line <= lines.length, error.message)
    }
  })
  fc.assert(property, { numRuns: 3000 })
  assert.ok(evaluatedCount > 100, `${evaluatedCount} texts had operations`)
})

test('lines: comments, blank lines and continuations change the lines alone', () => {
  const pairs: [joined: string, broken: string][] = [
    ['RUN a b', 'RUN a \\\n# c\n\nb'],
    ['RUN ["a", "b"]', '\n# c\nrun ["a",\\\n "b"]'],
    ['COPY a b /c/', 'COPY \\\n\n a \\\n # c\nb /c/'],
    ['ENV A="1 2" B=$A', 'ENV A="1 \\\n2" \\\n\n# c\nB=$A'],
    ['RUN cat <<E\nx\n# kept\n\nE', 'RUN cat \\\n# c\n<<E\nx\n# kept\n\nE\n\n'],
    ['WORKDIR /$A/x', ' \t WORKDIR \\ \t\n/$A/x  '],
  ]
  const withoutLines = (operations: Operation[]) =>
    operations.map((operation) => ({
      ...operation,
      line: 0,
      summary: '',
      ...(operation.type === 'run' ? { argv: operation.argv.map((word) => word.replaceAll(/ +/g, ' ')) } : {}),
    }))
  const property = fc.property(
    fc.array(fc.tuple(fc.constantFrom(...pairs), fc.boolean()), { maxLength: 12 }),
    (chosen) => {
      const of = (text: string) => evaluated(`FROM a\n${text}`)
      const joined = of(chosen.map(([[plain]]) => plain).join('\n'))
      const broken = of(chosen.map(([[plain, other], isBroken]) => (isBroken ? other : plain)).join('\n'))
      assert.deepEqual(withoutLines(broken.operations), withoutLines(joined.operations))
      assert.deepEqual(broken.state, joined.state)
    },
  )
  fc.assert(property, { numRuns: 200 })
})

test('expansion: the same as that of bash', () => {
  const values = { X: 'abbabaab', Y: 'a', E: '' }
  const letters = (chars: string, minLength: number) =>
    fc.array(fc.constantFrom(...chars.split('')), { minLength, maxLength: 4 }).map((it) => it.join(''))
  const name = fc.constantFrom('X', 'Y', 'E', 'U')
  const { word } = fc.letrec<{ word: string; part: string }>((tie) => ({
    word: fc.array(tie('part'), { maxLength: 4 }).map((parts) => parts.join('')),
    part: fc.oneof(
      { maxDepth: 3 },
      letters('ab', 1),
      fc.constantFrom(`'$X'`, '"$X"', '\\$X', '"a\\"b"', '\\"', '""'),
      name.map((it) => `$${it}.`),
      fc
        .tuple(name, fc.constantFrom('-', ':-', '+', ':+'), tie('word'))
        .map(([of, modifier, other]) => `\${${of}${modifier}${other}}`),
      fc
        .tuple(name, fc.constantFrom('#', '##', '%', '%%'), letters('ab*?', 0))
        .map(([of, modifier, pattern]) => `\${${of}${modifier}${pattern}}`),
      fc
        .tuple(name, fc.constantFrom('/', '//'), letters('ab*?', 1), letters('cd', 0))
        .map(([of, modifier, pattern, by]) => `\${${of}${modifier}${pattern}/${by}}`),
    ),
  }))
  const words = fc.sample(word, 2000)
  const lines = words.map((it) => `r=${it}; printf '%s\\n' "$r"`)
  const assignments = Object.entries(values).map(([key, value]) => `${key}='${value}'`)
  const output = execFileSync('bash', ['--norc'], {
    input: `unset U\n${[...assignments, ...lines].join('\n')}\n`,
    env: {},
  })
  const expected = output.toString().split('\n')
  const budget = new ExpansionBudget()
  const valueOf = (key: string) => (Object.hasOwn(values, key) ? values[key as keyof typeof values] : undefined)
  for (const [index, it] of words.entries())
    assert.equal(expandWord(it, { line: 1, escape: '\\', budget, valueOf }), expected[index], it)
})
