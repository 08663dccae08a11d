import assert from 'node:assert/strict'
import { test } from 'node:test'
import { initialState, parseDockerfile, StageEvaluation, stagesNeeded } from './index.ts'
import { argvsOf, assertRefused, evaluated } from './testing/evaluated.ts'

const configOf = (text: string, base = {}) => evaluated(text, { base: { config: base } }).state.config
const envsOf = (text: string, options?: Parameters<typeof evaluated>[1]) => evaluated(text, options).state.envs

test('ENV: an instruction sees what was set before it', () => {
  assert.deepEqual(envsOf('FROM a\nENV abc=hello\nENV abc=bye def=$abc\nENV ghi=$abc'), {
    abc: 'bye',
    def: 'hello',
    ghi: 'bye',
  })
})

test('ENV: quotes, escapes, lines and the older form', () => {
  assert.deepEqual(envsOf('FROM a\nENV MY_NAME="John Doe" MY_DOG=Rex\\ The\\ Dog \\\n    MY_CAT=fluffy'), {
    MY_NAME: 'John Doe',
    MY_DOG: 'Rex The Dog',
    MY_CAT: 'fluffy',
  })
  assert.deepEqual(envsOf(`FROM a\nENV ONE TWO= THREE=world\nENV T\ta  "b  c" $ONE\nENV E= F="" G='$ONE' H=a=b`), {
    ONE: 'TWO= THREE=world',
    T: 'a  b  c TWO= THREE=world',
    E: '',
    F: '',
    G: '$ONE',
    H: 'a=b',
  })
  assert.deepEqual(envsOf('FROM a\nENV N=X\nENV $N=1 constructor=2 __proto__=3'), {
    N: 'X',
    X: '1',
    constructor: '2',
    ['__proto__']: '3',
  })
})

test('ENV: what is no variable is refused', () => {
  const cases: [string, RegExp][] = [
    ['ENV', /ENV takes name=value/],
    ['ENV A', /ENV "A" has no value/],
    ['ENV A=1 B', /"B" has no =/],
    ['ENV =1', /has no name/],
    ['ENV A-B=1', /no name of a variable/],
    ['ENV 1=1', /no name of a variable/],
    ['ENV $X=1', /no name of a variable/],
    ['ENV --x=1', /ENV has no flag/],
    ['ENV A="1', /" has no end/],
    ["ENV A it's", /' has no end/],
    [`ENV A=${'x'.repeat(140_000)}`, /more than 131072 bytes together/],
    ['ARG A-B', /no name of a variable/],
    ['ARG', /ARG takes a name/],
    ['ARG =x', /no name of a variable/],
  ]
  for (const [instruction, why] of cases) assertRefused(`FROM a\n${instruction}`, 2, why)
})

test('ENV: it wins over ARG, whichever comes first', () => {
  const options = { buildArgs: { V: 'given' } }
  for (const text of ['ARG V\nENV V=env', 'ENV V=env\nARG V', 'ARG V=default\nENV V=env\nARG V=again']) {
    const { operations, state } = evaluated(`FROM a\n${text}\nRUN x\nWORKDIR /$V`, options)
    const [run, workdir] = operations
    assert.deepEqual(run?.type === 'run' && run.envs, { V: 'env' }, text)
    assert.deepEqual(workdir?.type === 'workdir' && workdir.path, '/env', text)
    assert.deepEqual(state.envs, { V: 'env' })
  }
  assert.deepEqual(envsOf('FROM a\nARG V\nENV V=${V:-v1}', options), { V: 'given' })
  assert.deepEqual(envsOf('FROM a\nARG V\nENV V=${V:-v1}'), { V: 'v1' })
  // That of the base counts.
  assert.deepEqual(envsOf('FROM a\nARG V\nENV W=$V', { ...options, base: { envs: { V: 'base' } } }), {
    V: 'base',
    W: 'base',
  })
})

test('ENV: PATH is there for one that adds to it, also on an image without', () => {
  const standard = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
  assert.deepEqual(envsOf('FROM scratch\nENV PATH=/opt/bin:$PATH'), { PATH: `/opt/bin:${standard}` })
  assert.deepEqual(envsOf('FROM a\nENV PATH=/opt/bin:$PATH', { base: { envs: { PATH: '/b' } } }), {
    PATH: '/opt/bin:/b',
  })
  assert.deepEqual(envsOf('FROM a\nRUN x'), {})
})

test('RUN: the shell form, the exec form, and a list that is no JSON', () => {
  assert.deepEqual(argvsOf('FROM a\nRUN echo $HOME "a" \\\n && b # c\nRUN ["c", "$HOME", "a\\\\b"]\nRUN\t[ "d" ]'), [
    ['/bin/sh', '-c', 'echo $HOME "a"  && b # c'],
    ['c', '$HOME', 'a\\b'],
    ['d'],
  ])
  for (const text of [`['a', 'b']`, '[ -f x ] && y', '["a"] && b', '["a",]', '["c:\\windows"]', '["a" "b"]'])
    assert.deepEqual(argvsOf(`FROM a\nRUN ${text}`), [['/bin/sh', '-c', text]])
  assertRefused('FROM a\nRUN ["a", 1]', 2, /something else than text/)
  assertRefused('FROM a\nRUN', 2, /RUN takes a command/)
  assertRefused('FROM a\nRUN []', 2, /RUN takes a command/)
  assertRefused(`FROM a\nRUN <<E\n${'x\n'.repeat(70_000)}E`, 2, /a word of more than 131071 bytes/)
})

test('RUN: flags', () => {
  assert.deepEqual(argvsOf('FROM a\nRUN --network=default --security=sandbox -- --x\nRUN -x --network=none'), [
    ['/bin/sh', '-c', '--x'],
    ['/bin/sh', '-c', '-x --network=none'],
  ])
  const cases: [string, RegExp][] = [
    ['--network=none', /--network=none is not supported/],
    ['--network=host', /--network=host is not supported/],
    ['--network=x', /--network takes default/],
    ['--security=insecure', /--security is not supported/],
    ['--device=x', /--device is not supported/],
    ['--mout=type=cache', /no flag "--mout"; did you mean mount/],
    ['--mount', /--mount takes a value/],
    ['--network=default --network=default', /--network twice/],
  ]
  for (const [flags, why] of cases) assertRefused(`FROM a\nRUN ${flags} x`, 2, why)
})

test('SHELL: it is that of later shell forms, in the image too', () => {
  const text = 'FROM a\nRUN a\nSHELL ["/bin/bash", "-c"]\nRUN b\nCMD c\nENTRYPOINT d'
  assert.deepEqual(argvsOf(text), [
    ['/bin/sh', '-c', 'a'],
    ['/bin/bash', '-c', 'b'],
  ])
  assert.deepEqual(configOf(text), {
    shell: ['/bin/bash', '-c'],
    cmd: ['/bin/bash', '-c', 'c'],
    entrypoint: ['/bin/bash', '-c', 'd'],
  })
  assert.deepEqual(configOf('FROM a\nCMD x', { shell: ['/s'] }).cmd, ['/s', 'x'])
  for (const bad of ['/bin/bash -c', '[]', '[""]', '["a", 1]', "['a']"])
    assertRefused(`FROM a\nSHELL ${bad}`, 2, /SHELL takes a JSON list/)
})

test('WORKDIR: relative to the one before, in the image', () => {
  const { operations, state } = evaluated(
    'FROM a\nWORKDIR b\nENV D=/path\nWORKDIR ./c d/../"e f"\nWORKDIR ..\nWORKDIR $D/$NONE/x/\nRUN x',
    {
      base: { cwd: '/srv' },
    },
  )
  const paths = operations.map((it) => (it.type === 'workdir' ? it.path : it.type === 'run' ? it.cwd : ''))
  assert.deepEqual(paths, ['/srv/b', '/srv/b/c d/../e f'.replace('c d/../', ''), '/srv/b', '/path/x', '/path/x'])
  assert.equal(state.cwd, '/path/x')
  assert.equal(evaluated('FROM a\nRUN x').state.cwd, undefined)
  assertRefused('FROM a\nWORKDIR', 2, /WORKDIR takes a path/)
  assertRefused(`FROM a\n${'WORKDIR some/folder\n'.repeat(900)}`, 343, /path is longer than 4096/)
})

test('USER: of later commands and folders', () => {
  const { operations, state } = evaluated(
    'FROM a\nRUN x\nUSER ${U:-"node"}\nRUN x\nWORKDIR /a\nUSER 1000:www-data\nRUN x',
  )
  const users = operations.map((it) => (it.type === 'run' || it.type === 'workdir' ? it.user : ''))
  assert.deepEqual(users, [undefined, 'node', 'node', '1000:www-data'])
  assert.equal(state.user, '1000:www-data')
  for (const bad of ['a b', '$NONE', ':x', 'a:b:c', '-x', 'a/b'])
    assertRefused(`FROM a\nUSER ${bad}`, 2, /USER takes a name/)
})

test('LABEL: forms, quotes, lines and inheritance', () => {
  const text = `FROM a
ENV V=1
LABEL "com.example.vendor"="ACME Incorporated"
LABEL com.example.label-with-value="foo"
LABEL version="$V.0" other='$V'
LABEL description="This text illustrates \\
that label-values can span multiple lines."
LABEL multi.label1="value1" \\
      multi.label2="value2"
LABEL old form  of it
LABEL version=2`
  assert.deepEqual(configOf(text, { labels: { base: 'x', version: '0' } }).labels, {
    base: 'x',
    'com.example.vendor': 'ACME Incorporated',
    'com.example.label-with-value': 'foo',
    version: '2',
    other: '$V',
    description: 'This text illustrates that label-values can span multiple lines.',
    'multi.label1': 'value1',
    'multi.label2': 'value2',
    old: 'form  of it',
  })
  assertRefused('FROM a\nLABEL a', 2, /LABEL "a" has no value/)
  assertRefused('FROM a\nLABEL $X=a', 2, /a label has no name/)
})

test('EXPOSE: ports, protocols, ranges, and those of the base', () => {
  const text = 'FROM a\nENV P="81 82/UDP"\nEXPOSE 80 443/tcp\t53/udp\nEXPOSE 8000-8002/sctp $P 80'
  assert.deepEqual(configOf(text, { exposedPorts: ['22/tcp'] }).exposedPorts, [
    '22/tcp',
    '80/tcp',
    '443/tcp',
    '53/udp',
    '8000/sctp',
    '8001/sctp',
    '8002/sctp',
    '81/tcp',
    '82/udp',
  ])
  for (const bad of ['x', '80/icmp', '9-8', '65536', '80/', '-1', '1-2-3'])
    assertRefused(`FROM a\nEXPOSE ${bad}`, 2, /EXPOSE takes a port/)
  assertRefused('FROM a\nEXPOSE 8080:80', 2, /no ports or addresses of a host/)
  assertRefused('FROM a\nEXPOSE', 2, /EXPOSE takes a port/)
  assertRefused('FROM a\nEXPOSE 1-65535', 2, /more than 16384 ports/)
  assertRefused(`FROM a\nEXPOSE ${'1-9000 '.repeat(4000)}`, 2, /stand for more/)
})

test('VOLUME: words or a list', () => {
  assert.deepEqual(configOf('FROM a\nENV D=/d\nVOLUME /a $D/b\nVOLUME ["/c d", "$D"] \nVOLUME /a').volumes, [
    '/a',
    '/d/b',
    '/c d',
    '/d',
  ])
  assertRefused('FROM a\nVOLUME', 2, /VOLUME takes a path/)
  assertRefused('FROM a\nVOLUME []', 2, /VOLUME takes a path/)
  assertRefused('FROM a\nVOLUME [" "]', 2, /a VOLUME is empty/)
  assertRefused('FROM a\nVOLUME [1]', 2, /something else than text/)
})

test('STOPSIGNAL: a name or a number', () => {
  for (const signal of ['SIGKILL', 'KILL', '9', 'sigterm', 'SIGRTMIN+3', 'RTMAX-1', 'SIGRTMIN'])
    assert.equal(configOf(`FROM a\nENV S=${signal}\nSTOPSIGNAL $S`).stopSignal, signal)
  for (const bad of ['SIGNONE', '0', '65', '-9', '$NONE', 'SIG'])
    assertRefused(`FROM a\nSTOPSIGNAL ${bad}`, 2, /STOPSIGNAL takes a signal/)
})

test('HEALTHCHECK: commands, times and NONE', () => {
  const of = (text: string) =>
    configOf(`FROM a\nHEALTHCHECK ${text}`, { healthcheck: { test: ['CMD', 'base'], retries: 9 } }).healthcheck
  assert.deepEqual(of('--interval=5m --timeout=3s \\\n  CMD curl -f http://localhost/ || exit 1'), {
    test: ['CMD-SHELL', 'curl -f http://localhost/ || exit 1'],
    intervalMs: 300_000,
    timeoutMs: 3000,
  })
  assert.deepEqual(of('--start-period=1h1m1.5s --start-interval=250ms --retries=3 --timeout=0 cmd ["a", "b"]'), {
    test: ['CMD', 'a', 'b'],
    startPeriodMs: 3_661_500,
    startIntervalMs: 250,
    retries: 3,
  })
  assert.deepEqual(of('none'), { test: ['NONE'] })
  const cases: [string, RegExp][] = [
    ['', /HEALTHCHECK takes CMD/],
    ['curl x', /HEALTHCHECK takes CMD/],
    ['NONE x', /takes nothing more/],
    ['CMD', /CMD takes a command/],
    ['CMD []', /CMD takes a command/],
    ['CMD [1]', /something else than text/],
    ['--interval=5 CMD x', /--interval takes a duration/],
    ['--interval=-5s CMD x', /--interval takes a duration/],
    ['--timeout=1us CMD x', /--timeout takes a duration/],
    ['--retries=-1 CMD x', /--retries takes a number/],
    ['--retrys=1 CMD x', /did you mean retries/],
  ]
  for (const [text, why] of cases) assertRefused(`FROM a\nHEALTHCHECK ${text}`, 2, why)
})

test('ENTRYPOINT: it drops the CMD of what the stage stands on, and none of its own', () => {
  const base = { entrypoint: ['old'], cmd: ['x'] }
  assert.deepEqual(configOf('FROM a\nRUN x', base), base)
  assert.deepEqual(configOf('FROM a\nENTRYPOINT ["e"]', base), { entrypoint: ['e'] })
  assert.deepEqual(configOf('FROM a\nCMD ["c"]\nENTRYPOINT ["e"]', base), { cmd: ['c'], entrypoint: ['e'] })
  assert.deepEqual(configOf('FROM a\nENTRYPOINT ["e"]\nCMD ["c"]', base), { cmd: ['c'], entrypoint: ['e'] })
  assert.deepEqual(configOf('FROM a AS s\nCMD ["c"]\nFROM s\nENTRYPOINT e'), { entrypoint: ['/bin/sh', '-c', 'e'] })
  assert.deepEqual(configOf('FROM a\nENTRYPOINT []\nCMD []', base), {})
  assert.deepEqual(configOf('FROM a\nCMD ["$A"]\nCMD echo $A'), { cmd: ['/bin/sh', '-c', 'echo $A'] })
})

test('MAINTAINER: it is taken and left out', () => {
  assert.deepEqual(configOf('FROM a\nMAINTAINER A Name <a@b.c>'), {})
  assertRefused('FROM a\nMAINTAINER', 2, /MAINTAINER takes a name/)
})

test('a stage: what it stands on is not changed, and it can be evaluated again', () => {
  const [stage] = stagesNeeded(
    parseDockerfile('FROM a\nARG X=1\nENV A=2\nLABEL b=c\nEXPOSE 80\nWORKDIR d\nRUN x'),
  ).stages
  const initial = initialState({ envs: { B: '1' }, cwd: '/w', config: { labels: { l: 'm' } } })
  const before = structuredClone(initial)
  const rounds = [1, 2].map(() => {
    const evaluation = new StageEvaluation(stage!, initial)
    return [[...evaluation.operations()], evaluation.state]
  })
  assert.deepEqual(rounds[0], rounds[1])
  assert.deepEqual(initial, before)
  assert.deepEqual((rounds[0]![1] as typeof initial).args, { X: '1' })
})

test('a list that is no JSON is told, since it is text', () => {
  const text = `FROM a\nRUN ['a', 'b']\nCMD ["a", "b",]\nRUN [ "$a" = b ]\nRUN ["a", "b"]`
  const lines = evaluated(text).warnings.map((warning) => /^line (\d+): the list is no JSON/.exec(warning)?.[1])
  assert.deepEqual(lines, ['2', '3'])
})

test('rules that builders have had wrong', () => {
  assert.deepEqual(envsOf(`FROM a\nENV x="a b 'c'"\nENV y="'d' e" HI="--h=\\"w\\""`), {
    x: "a b 'c'",
    y: "'d' e",
    HI: '--h="w"',
  })
  assert.deepEqual(configOf(`FROM a\nENV x="a b 'c'"\nLABEL n=$x "a"="b"\\\n  "c"="d"`).labels, {
    n: "a b 'c'",
    a: 'b',
    c: 'd',
  })
  assert.deepEqual(envsOf('FROM a\nARG my_arg\nENV my_arg "${my_arg:-def_val}"'), { my_arg: 'def_val' })
  // A default that asks for a value is not read when there is one.
  assert.deepEqual(envsOf('ARG F=${F:?}\nFROM a\nARG F\nENV G=$F', { buildArgs: { F: 'x' } }), { G: 'x' })
  assertRefused('ARG F="${F:?give F}"\nFROM a', 1, /F: give F/)
  // An argument of a stage below, declared again.
  assert.deepEqual(envsOf('FROM a AS b\nARG N=1234\nFROM b AS c\nARG N\nENV M=$N'), { M: '1234' })
  assert.deepEqual(
    evaluated('ARG V\nFROM s AS base-dev\nENV A=1\nFROM s AS base-prod\nFROM base-${V}', { buildArgs: { V: 'dev' } })
      .state.envs,
    { A: '1' },
  )
  assert.deepEqual(evaluated('ARG i="node:10"\nFROM ${i}').lines, [2])
  for (const list of ['[ "echo", [ "nested" ] ]', '[1]'])
    assertRefused(`FROM a\nCMD ${list}`, 2, /something else than text/)
})
