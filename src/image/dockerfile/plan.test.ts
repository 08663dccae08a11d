import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { lineNaming, parseDockerfile, type PlanOptions, stagesNeeded } from './index.ts'
import { machinePlatform } from './platform.ts'
import { argvsOf, assertRefused, evaluated } from './testing/evaluated.ts'

const planOf = (text: string, options?: PlanOptions) => stagesNeeded(parseDockerfile(text), options)
const fromsOf = (text: string, options?: PlanOptions) => planOf(text, options).stages.map(({ from }) => from)
const other = machinePlatform.arch === 'amd64' ? 'arm64' : 'amd64'

test('FROM: an image, an earlier stage, or nothing', () => {
  assert.deepEqual(fromsOf('FROM docker.io/library/python:3.12@sha256:aa'), [
    { image: 'docker.io/library/python:3.12@sha256:aa' },
  ])
  assert.deepEqual(fromsOf('from Base:1 as Build_1.x-y\nFROM scratch\nFROM BUILD_1.X-Y'), [
    { image: 'Base:1' },
    { stage: 0 },
  ])
  // A stage has its name from its line on, and takes it from an image.
  assert.deepEqual(fromsOf('FROM python AS python\nFROM python'), [{ image: 'python' }, { stage: 0 }])
  assert.deepEqual(fromsOf('FROM b AS a\nFROM a AS b'), [{ image: 'b' }, { stage: 0 }])
  assert.deepEqual(fromsOf('FROM scratch'), ['scratch'])
})

test('FROM: what is wrong is refused with its line', () => {
  const cases: [string, number, RegExp][] = [
    ['', 1, /the Dockerfile has no FROM/],
    ['# c\n', 1, /the Dockerfile has no FROM/],
    ['ARG a\n', 1, /the Dockerfile has no FROM/],
    ['ARG a\nRUN b', 2, /first instruction is FROM/],
    ['FROM', 1, /FROM takes an image/],
    ['FROM a b', 1, /FROM takes an image, and AS/],
    ['FROM a AS', 1, /FROM takes an image, and AS/],
    ['FROM a AS b c', 1, /FROM takes an image, and AS/],
    ['FROM a\nFROM a AS 1b', 2, /no name of a stage/],
    ['FROM a AS x/y', 1, /no name of a stage/],
    ['FROM a AS scratch', 1, /scratch is the empty image/],
    ['FROM a AS b\nFROM a AS c\nFROM a AS B', 3, /a second stage has the name "b"/],
    ['FROM $x', 1, /stands for nothing/],
    ['ARG x="a b"\nFROM $x', 2, /no name of an image/],
    ['FROM --platfrom=linux a', 1, /no flag "--platfrom"; did you mean platform/],
    ['FROM --platform a', 1, /--platform takes a value/],
    ['FROM --platform=a --platform=a b', 1, /--platform twice/],
    ['FROM "a', 1, /" has no end/],
  ]
  for (const [text, line, why] of cases) assertRefused(text, line, why)
})

test('FROM: --platform is that of this machine', () => {
  const { os, arch } = machinePlatform
  for (const platform of [
    `${os}/${arch}`,
    os,
    arch,
    '$BUILDPLATFORM',
    '${TARGETPLATFORM}',
    `${os}/$TARGETARCH`,
    '"linux"',
  ])
    assert.deepEqual(fromsOf(`FROM --platform=${platform} a`), [{ image: 'a' }], platform)
  assertRefused(
    `FROM a AS b\nFROM --platform=linux/${other} a`,
    2,
    new RegExp(`not that of this machine, linux/${arch}`),
  )
  assertRefused('FROM --platform=windows/amd64 a', 1, /not that of this machine/)
  assertRefused('FROM --platform=$NONE a', 1, /not that of this machine/)
  assertRefused(`FROM --platform=$TARGETPLATFORM a`, 1, /not that of/, {
    buildArgs: { TARGETPLATFORM: `linux/${other}` },
  })
})

test('ARG: one before FROM is for FROM, in order, and a given one wins', () => {
  const text = 'ARG A=1 B=$A\nARG C=${B:-x}-$NONE D\nFROM i:$A-$B-$C-$D'
  assert.deepEqual(fromsOf(text), [{ image: 'i:1--x--' }])
  assert.deepEqual(fromsOf(text, { buildArgs: { A: '$9', D: 'd' } }), [{ image: 'i:$9--x--d' }])
  assert.deepEqual(fromsOf('ARG A=1\nARG B=$A\nFROM i:$B'), [{ image: 'i:1' }])
  // Not declared: not known.
  assert.deepEqual(fromsOf('FROM i:$A-$TARGETOS', { buildArgs: { A: '1' } }), [{ image: 'i:-linux' }])
  assert.deepEqual(fromsOf('FROM a\nARG A=1\nFROM i:$A', {}), [{ image: 'i:' }])
})

test('stages: those that the target needs, each after what it needs', () => {
  const text = `FROM a AS one
FROM b AS two
FROM one AS three
COPY --from=1 /x /y
FROM c AS four
RUN --mount=from=TWO,target=/m x
COPY --from=image:1 /x /y
FROM d AS five
`
  const lines = (target?: string) => planOf(text, target === undefined ? {} : { target }).stages.map(({ line }) => line)
  assert.deepEqual(lines(), [8])
  assert.deepEqual(lines('three'), [1, 2, 3])
  assert.deepEqual(lines('THREE'), [1, 2, 3])
  assert.deepEqual(lines('3'), [2, 5])
  assert.deepEqual(lines('0'), [1])
  const { stages } = planOf(text, { target: 'four' })
  assert.deepEqual(
    stages[1]!.sources,
    new Map<string, unknown>([
      ['TWO', { stage: 1 }],
      ['image:1', { image: 'image:1' }],
    ]),
  )
  assert.deepEqual([stages[1]!.name, stages[1]!.index, stages[1]!.stepLines], ['four', 3, [6, 7]])
})

test('stages: a target that is none is refused with the nearest one', () => {
  assert.throws(
    () => planOf('FROM a AS build\nFROM b AS run', { target: 'biuld' }),
    (error) =>
      isServiceError(error, 'invalid_request') &&
      error.details['field'] === 'target' &&
      /did you mean build/.test(error.message),
  )
  assert.throws(() => planOf('FROM a AS build', { target: '1' }), /no stage "1": it has build/)
})

test('--from: an earlier stage by name or number, scratch, or an image', () => {
  const cases: [string, number, RegExp][] = [
    ['FROM a AS x\nCOPY --from=y /a /b\nFROM b AS y', 2, /"y" comes later, in line 3/],
    ['FROM a AS x\nCOPY --from=1 /a /b\nFROM b AS y', 2, /"1" comes later/],
    ['FROM a AS x\nCOPY --from=X /a /b', 2, /cannot copy from itself/],
    ['FROM a\nRUN --mount=from=0,target=/a b', 2, /cannot copy from itself/],
    ['FROM a\nCOPY --from=7 /a /b', 2, /there is no stage "7"/],
    ['FROM a\nCOPY --from=$x /a /b', 2, /--from takes no variables/],
    ['FROM a\nRUN --mount=from=${x},target=/a b', 2, /from of --mount takes no variables/],
    ['FROM a\nCOPY --from= /a /b', 2, /--from takes a stage/],
    ['FROM a\nCOPY --from="a b" /a /b', 2, /no name of an image/],
    [`FROM a\nCOPY --from=${'a'.repeat(513)} /a /b`, 2, /no name of an image/],
  ]
  for (const [text, line, why] of cases) assertRefused(text, line, why, { target: '0' })
  assert.deepEqual(planOf('FROM a\nCOPY --from=scratch / /b').stages[0]!.sources.get('scratch'), 'scratch')
})

test('arguments: those that no ARG declares are told', () => {
  const text = 'ARG ONE\nFROM a AS x\nARG VERSION=1\nFROM b'
  const warningsOf = (buildArgs: Record<string, string>) => planOf(text, { buildArgs }).warnings
  assert.deepEqual(
    warningsOf({
      ONE: '',
      VERSION: '',
      HTTP_PROXY: '',
      no_proxy: '',
      TARGETARCH: machinePlatform.arch,
      BUILDKIT_INLINE_CACHE: '1',
      SOURCE_DATE_EPOCH: '0',
    }),
    [],
  )
  assert.deepEqual(warningsOf({ VERSIONS: '2' }), [
    'the argument "VERSIONS" is declared by no ARG; did you mean VERSION?',
  ])
  assert.equal(warningsOf(Object.fromEntries(Array.from({ length: 1000 }, (_, at) => [`unused${at}`, '']))).length, 10)
})

test('arguments: too many, too long and those with a zero byte are refused', () => {
  const args: Record<string, string>[] = [
    Object.fromEntries(Array.from({ length: 1001 }, (_, at) => [`a${at}`, ''])),
    { a: 'x'.repeat(1024 * 1024) },
    { a: '\0' },
    { 'a\0': '' },
  ]
  for (const buildArgs of args)
    assert.throws(
      () => planOf('FROM a', { buildArgs }),
      (error) => isServiceError(error, 'invalid_request') && error.details['field'] === 'buildArgs',
    )
  assertRefused(`ARG ${'a '.repeat(1001)}\nFROM a`, 1, /more than 1000 arguments/)
})

test('ARG: a stage takes over one from before FROM, and one of the stage it stands on', () => {
  const show = 'ARG OUT="$A,$B,$C"\nRUN x'
  const outs = (text: string, buildArgs?: Record<string, string>) =>
    evaluated(text, buildArgs === undefined ? {} : { buildArgs }).operations.map(
      (it) => it.type === 'run' && it.envs['OUT'],
    )
  assert.deepEqual(outs(`ARG A=1 B=2\nFROM a\nARG A\nARG B=3\nARG C\n${show}`), ['1,3,'])
  assert.deepEqual(outs(`ARG A=1 B=2\nFROM a\nARG A\nARG B=3\nARG C\n${show}`, { A: 'x', B: 'y', C: 'z' }), ['x,y,z'])
  assert.deepEqual(outs(`FROM a AS s\nARG A=1\nFROM s\n${show}`), ['1,,'])
  assert.deepEqual(outs(`FROM a AS s\nARG A=1\nFROM a\nCOPY --from=s a b\n${show}`), [false, ',,'])
  // Not before the line that declares it, and not without.
  assert.deepEqual(outs(`FROM a\n${show}\nARG A\n${show}`, { A: '1', B: '2' }), [',,', '1,,'])
  assert.deepEqual(outs(`FROM a\nARG A=1 B=\${A}2 C=$B\n${show}`), ['1,12,12'])
  assert.deepEqual(argvsOf('FROM a\nARG A="x y"\nSHELL ["$A"]\nRUN $A'), [['$A', '$A']])
})

test('ARG: the platform, once a stage asks for it', () => {
  const text = 'FROM a AS tgt\nARG TARGETARCH TARGETPLATFORM BUILDOS TARGETVARIANT TARGETSTAGE\nRUN x'
  const [run] = evaluated(text).operations
  const { arch, variant } = machinePlatform
  assert.ok(run?.type === 'run')
  assert.deepEqual(run.envs, {
    TARGETARCH: arch,
    TARGETPLATFORM: `linux/${arch}${variant === '' ? '' : `/${variant}`}`,
    BUILDOS: 'linux',
    TARGETVARIANT: variant,
    TARGETSTAGE: 'tgt',
  })
  const [without] = evaluated('FROM a\nRUN x').operations
  assert.deepEqual(without?.type === 'run' && without.envs, {})
})

test('ARG: proxies are there without one, apart from what counts in a hash', () => {
  const buildArgs = { HTTP_PROXY: 'http://p', no_proxy: 'x', OTHER: 'y' }
  const { operations } = evaluated(
    'FROM a\nRUN $HTTP_PROXY\nWORKDIR /$HTTP_PROXY\nARG HTTP_PROXY\nENV no_proxy=z\nRUN x',
    { buildArgs },
  )
  const [first, workdir, second] = operations
  assert.ok(first?.type === 'run' && workdir?.type === 'workdir' && second?.type === 'run')
  assert.deepEqual([first.envs, first.proxies], [{}, { HTTP_PROXY: 'http://p', no_proxy: 'x' }])
  assert.equal(workdir.path, '/')
  assert.deepEqual([second.envs, second.proxies], [{ HTTP_PROXY: 'http://p', no_proxy: 'z' }, {}])
})

test('plan: the first instruction of a stage that needs files of the build is known', () => {
  const lineOf = (text: string) => planOf(`FROM base AS other\nRUN true\nFROM base\n${text}`).stages.at(-1)?.contextLine
  for (const text of [
    'COPY a /',
    'ADD a /',
    'COPY <<A b /\nA',
    'RUN --mount=target=/x true',
    'RUN --mount=type=bind,target=/x true',
  ])
    assert.equal(lineOf(`RUN true\n${text}`), 5, text)
  for (const text of [
    'COPY --from=other a /',
    'COPY <<A /\nA',
    'RUN --mount=type=cache,target=/x true',
    'RUN --mount=type=bind,from=other,target=/x true',
  ])
    assert.equal(lineOf(text), undefined, text)
})

test('plan: an image is found with the first line that names it', () => {
  const plan = planOf(
    ['FROM below AS a', '', 'FROM base', 'COPY --from=a / /x', 'COPY --from=other \\', ' /y /y']
      .concat(['RUN --mount=type=bind,from=third,target=/z true', 'COPY --from=below / /b'])
      .join('\n'),
  )
  for (const [image, line] of Object.entries({ below: 1, base: 3, other: 5, third: 7 }))
    assert.equal(lineNaming(plan, image), line, image)
  assert.deepEqual(plan.stageNames, ['a'])
})
