import assert from 'node:assert/strict'
import { test } from 'node:test'
import { processorTime } from '../../lib/testing/processor-time.ts'
import { ExpansionBudget } from './budget.ts'
import { type Expansion, expandHeredoc, expandWord } from './expand.ts'
import { assertRefused, evaluated } from './testing/evaluated.ts'

const expansion = (variables: Record<string, string>, escape = '\\'): Expansion => ({
  line: 3,
  escape,
  budget: new ExpansionBudget(),
  valueOf: (name) => (Object.hasOwn(variables, name) ? variables[name] : undefined),
})

/** Each case: a word, and what it stands for; a pattern for one that is refused. */
function assertExpands(variables: Record<string, string>, cases: [word: string, expected: string | RegExp][]): void {
  for (const [word, expected] of cases) {
    const expand = () => expandWord(word, expansion(variables))
    if (typeof expected === 'string') assert.equal(expand(), expected, word)
    else
      assert.throws(
        expand,
        (error: Error) => error.message.startsWith('dockerfile line 3: ') && expected.test(error.message),
        word,
      )
  }
}

const set = { PWD: '/home', SHELL: 'bash', KOREAN: '한국어', NULL: '' }

test('expansion: names end where letters, digits and _ do', () => {
  assertExpands(set, [
    ['hello', 'hello'],
    ['he$PWD', 'he/home'],
    ['he$PWD.', 'he/home.'],
    ['he${PWD}', 'he/home'],
    ['he${PWD}xx', 'he/homexx'],
    ['he$PWDxx', 'he'],
    ['he$HI', 'he'],
    ['he${HI}', 'he'],
    ['$', '$'],
    ['he$', 'he$'],
    ['a $ b', 'a $ b'],
    ['$(x)', '$(x)'],
    ['$12x', 'x'],
    ['$$', ''],
    ['$@ $* $# $? $- $!', '     '],
    ['안녕${KOREAN}하세요', '안녕한국어하세요'],
    ['안녕$KOREAN', '안녕한국어'],
    ['$constructor${__proto__}${toString:-x}', 'x'],
  ])
})

test('expansion: single quotes keep all, double quotes all but variables', () => {
  assertExpands(set, [
    [`he'll'o`, 'hello'],
    [`'he$PWD'`, 'he$PWD'],
    [`"he$PWD"`, 'he/home'],
    [`"he'$PWD'"`, "he'/home'"],
    [`'he"$PWD"'`, 'he"$PWD"'],
    ['"he\\"xx"', 'he"xx'],
    ['"he\\$PWD"', 'he$PWD'],
    ['"he\\\\x"', 'he\\x'],
    ['"he\\x"', 'he\\x'],
    ["'he\\x'", 'he\\x'],
    ["'hello\\there'", 'hello\\there'],
    ['""', ''],
    ['\'\'a""', 'a'],
    [`"$'x'"`, `$'x'`],
    ["he'llo", /' has no end/],
    ['he"llo', /" has no end/],
    ['"he\\"', /" has no end/],
    [`"he'`, /" has no end/],
    [`'he\\''`, /' has no end/],
  ])
})

test('expansion: an escape outside of quotes takes the meaning of what follows', () => {
  assertExpands(set, [
    ['he\\llo', 'hello'],
    ['he\\$PWD', 'he$PWD'],
    ['\\${PWD}', '${PWD}'],
    ['\\\\$PWD', '\\/home'],
    ["he\\'llo", "he'llo"],
    ['he\\"llo', 'he"llo'],
    ['hello\\', 'hello'],
    ['Rex\\ The\\ Dog', 'Rex The Dog'],
  ])
  assert.equal(expandWord('a`$PWD\\b`', expansion(set, '`')), 'a$PWD\\b')
})

test('expansion: defaults and alternatives', () => {
  assertExpands(set, [
    ['${SHELL:-x}', 'bash'],
    ['${NULL:-x}', 'x'],
    ['${NULL-x}', ''],
    ['${HI:-x}', 'x'],
    ['${HI-x}', 'x'],
    ['${HI:-}', ''],
    ['${SHELL:+x}', 'x'],
    ['${NULL:+x}', ''],
    ['${NULL+x}', 'x'],
    ['${HI:+x}', ''],
    ['${HI+x}', ''],
    ['${HI:-$PWD}', '/home'],
    ['${HI:-${NULL:-"$SHELL }"}}', 'bash }'],
    ['${HI:-a b}c', 'a bc'],
    ['${HI:-\\}}', '}'],
    ['${HI:-\\$PWD}', '$PWD'],
    ['"${HI:-"x"}"', 'x'],
    ['${KOREAN:+${HI:-한국어}}!', '한국어!'],
    ['${HI:-$HI}', ''],
  ])
})

test('expansion: what is asked for must be there', () => {
  assertExpands(set, [
    ['${SHELL:?why}', 'bash'],
    ['${NULL?why}', ''],
    ['${NULL:?}', /NULL: is empty/],
    ['${NULL:?it is $SHELL}', /NULL: it is bash/],
    ['${HI?}', /HI: is not set/],
    ['${HI:?give a HI}', /HI: give a HI/],
    // A word that is not used asks for nothing.
    ['${SHELL:-${HI:?why}}', 'bash'],
    ['${HI:+${HI:?why}}', ''],
    ['${SHELL:-${HI#"a"}${HI/a/b}}', 'bash'],
  ])
})

test('expansion: patterns at the beginning and at the end', () => {
  const values = {
    FOO: 'foobarbaz',
    X: 'xxyy',
    S: '???y',
    A: 'a***yy*',
    P: '()[]{}^$.*?|\\x',
    BAR: 'x',
    E: '',
    U: '🚀🖖a',
  }
  assertExpands(values, [
    ['${FOO#f*b}', 'arbaz'],
    ['${FOO##f*b}', 'az'],
    ['${FOO%b*}', 'foobar'],
    ['${FOO%%b*}', 'foo'],
    ['${FOO#o}', 'foobarbaz'],
    ['${FOO#*}', 'foobarbaz'],
    ['${FOO##*}', ''],
    ['${FOO%%*}', ''],
    ['${FOO#}', 'foobarbaz'],
    ['${FOO##}', 'foobarbaz'],
    ['${FOO%}', 'foobarbaz'],
    ['${X#*x*y}', 'y'],
    ['${X##*x}', 'yy'],
    ['${X#$BAR}', 'xyy'],
    ['${X#$E}', 'xxyy'],
    ['${X%x}', 'xxyy'],
    ['${S#?\\?}', '?y'],
    ['${A%%\\**\\*}', 'a'],
    ['${A%\\**}', 'a***yy'],
    ['${P#()[]{\\}^$.\\*\\?|\\\\}', 'x'],
    ['${U#?}', '🖖a'],
    ['${U%🖖?}', '🚀'],
    ['${HI#a}', ''],
    ['${FOO#"foo"}', 'barbaz'],
    ['${FOO##*b?}', 'z'],
    ['${FOO%a*b*}', 'foob'],
  ])
})

test('expansion: patterns anywhere', () => {
  const values = {
    FOO: 'foobarbaz',
    G: '/foo*/*/*.txt',
    N: '\\*/',
    T: '/tmp/tmp/bar.txt',
    D: '/tmp',
    U: 'http://a.b',
    E: '',
  }
  assertExpands(values, [
    ['${FOO/ba/fo}', 'fooforbaz'],
    ['${FOO//ba/fo}', 'fooforfoz'],
    ['${FOO//o/}', 'fbarbaz'],
    ['${FOO/b*/x}', 'foox'],
    ['${FOO//?/x}', 'xxxxxxxxx'],
    ['${G/$N/.} - ${G//$N/.}', '/foo.*/*.txt - /foo..*.txt'],
    ['${T/$D/} - ${T//$D/}', '/tmp/bar.txt - /bar.txt'],
    ['${T//\\//\\/}', '\\/tmp\\/tmp\\/bar.txt'],
    ['${T//\\//$FOO}', 'foobarbaztmpfoobarbaztmpfoobarbazbar.txt'],
    ['${U/http:\\/\\//https:\\/\\/}', 'https:\\/\\/a.b'],
    ['${FOO/$E/x}', 'foobarbaz'],
    ['${FOO///}', 'foobarbaz'],
    ['${HI///}', ''],
    ['${FOO//ww}', /takes a pattern/],
    ['${FOO/ww} a/b}', /takes a pattern/],
    ['${FOO//}', /takes a pattern/],
    ['${FOO/a/b', /no }/],
  ])
})

test('expansion: what no shell variable is', () => {
  assertExpands(set, [
    ['${PWD', /no }/],
    ['he${', /\$\{ is not followed/],
    ['${}', /\$\{ is not followed/],
    ['${{PWD}', /\$\{ is not followed/],
    ['${:-x}', /\$\{ is not followed/],
    ['${PWD:', /no form of a variable|no }/],
    ['${PWD=x}', /\$\{PWD=…\} is no form/],
    ['${PWD:=x}', /\$\{PWD:=…\} is no form/],
    ['${PWD^^}', /\$\{PWD\^…\} is no form/],
    ['${PWD:-x', /no }/],
    ['${PWD#x', /no }/],
    ['${HI:-"x}', /" has no end/],
  ])
})

test('expansion: a heredoc keeps quotes, and a backslash before anything but $, ` and itself', () => {
  const content = `"$SHELL" '$PWD' \\$PWD \\\\ \\n \\" \\\`x\\\` a\\\nb \${HI:-"c"}\n`
  assert.equal(expandHeredoc(content, expansion(set)), `"bash" '/home' $PWD \\ \\n \\" \`x\` ab "c"\n`)
})

test('expansion: a variable that doubles is refused at its line, at once', () => {
  const doubling = `FROM a\nENV A=0123456789\n${'ENV A=$A$A\n'.repeat(60)}`
  const usedMs = processorTime()
  assertRefused(doubling, 16, /variables have more than 131072 bytes together/)
  assertRefused(`ARG A=0123456789\n${'ARG A=$A$A\n'.repeat(60)}FROM $A`, 17, /variables stand for more than/)
  assertRefused(`FROM a\nARG A=01 ${'A=$A$A '.repeat(60)}`, 2, /variables stand for more than/)
  const many = `FROM a\nENV A=${'x'.repeat(100_000)}\n`
  assertRefused(`${many}LABEL b=${'$A'.repeat(300_000)}`, 3, /stand for more/)
  assertRefused(`${many}LABEL b="${'${A:-$A}'.repeat(100_000)}"`, 3, /stand for more/)
  assertRefused(`${many}LABEL b=\${A//x/$A}`, 3, /stand for more/)
  assertRefused(`${many}COPY <<E /f\n${'$A\n'.repeat(1000)}E`, 3, /stand for more/)
  assertRefused(`${many}${'LABEL $A=$A\n'.repeat(20)}`, 3, /labels have more than 131072 bytes/)
  assertRefused(
    `FROM a\n${'ENV A=x'.repeat(1)}${' B=x'.repeat(3)}\nENV ${Array.from({ length: 1001 }, (_, at) => `A${at}=`).join(' ')}`,
    3,
    /more than 1000 variables/,
  )
  assert.ok(usedMs() < 3000)
})

test('expansion: nesting and patterns cost no more than a bound', () => {
  const usedMs = processorTime()
  assertRefused(`FROM a\nENV A=${'${A:-'.repeat(150_000)}${'}'.repeat(150_000)}`, 2, /nested more than 64 deep/)
  assertRefused(`FROM a\nENV A="${'"${A:-'.repeat(150_000)}`, 2, /nested more than 64 deep/)
  const long = `FROM a\nENV A=${'a'.repeat(100_000)}\n`
  assertRefused(`${long}ENV B=\${A#*${'a'.repeat(50_000)}b}`, 3, /patterns of variables take too long/)
  assertRefused(`${long}ENV B=\${A%%b${'a'.repeat(50_000)}*}`, 3, /patterns of variables take too long/)
  assertRefused(`${long}ENV B=\${A//a${'a'.repeat(50_000)}b/c}`, 3, /patterns of variables take too long/)
  assertRefused(
    `${long}LABEL ${Array.from({ length: 900 }, (_, at) => `b${at}="\${A#?}"`).join(' ')}`,
    3,
    /too long|stand for more/,
  )
  // Many `*` cost nothing more, as they would where each is tried anew.
  const { labels } = evaluated(`${long}LABEL b=\${A#${'*a'.repeat(500)}*b}`).state.config
  assert.equal(labels?.['b'], 'a'.repeat(100_000))
  assert.ok(usedMs() < 3000)
})
