import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { Image } from '@opencomputer/sdk/node'
import { step as stepSchema } from '../protocol/http/images.ts'
import { defaultImageLimits } from './image.ts'
import { hashesOf, type Manifest, planOf } from './manifest.ts'
import { type ManifestStep, runStep, type StepCommand, type StepType } from './steps.ts'

const plan = (manifest: Manifest) => planOf(manifest, defaultImageLimits)

/** What the steps of a manifest ask of their sandbox. */
async function asked(manifest: Manifest) {
  const commands: StepCommand[] = []
  const paths: string[] = []
  const { outline } = await plan(manifest)
  for (const step of outline.steps) {
    await runStep(step, {
      run: async (command) => void commands.push(command),
      makeFolder: async (path) => void paths.push(`${path}/`),
      write: async (path, { bytes }) => void paths.push(`${path} ${bytes}`),
    })
  }
  return { commands, paths, outline }
}

test('steps: packages are arguments, and nothing asks a question', async () => {
  const image = Image.base().aptInstall(['jq', 'curl']).pipInstall(['requests>=2', 'flask[async]']).builderMemory(2048)
  const { commands, outline } = await asked(image.toJSON() as unknown as Manifest)
  assert.equal(outline.builderMemoryMB, 2048)
  const [apt, pip] = commands
  assert.deepEqual(apt?.argv.slice(0, 2), ['sh', '-c'])
  assert.match(apt?.argv[2] ?? '', /apt-get update && apt-get install --yes -- "\$@"/)
  assert.deepEqual(apt?.argv.slice(4), ['jq', 'curl'])
  assert.deepEqual(apt?.envs, { DEBIAN_FRONTEND: 'noninteractive' })
  assert.deepEqual(pip?.argv.slice(4), ['requests>=2', 'flask[async]'])
})

/** What the command of a `pip_install` calls on a machine that has these programs alone, and with what it ends. */
async function pipInstall(context: TestContext, programs: Record<string, string>) {
  const folder = await mkdtemp(join(tmpdir(), 'atoll-pip-'))
  context.after(() => rm(folder, { recursive: true }))
  for (const [name, script] of Object.entries({ ...programs, sh: 'exec /bin/sh "$@"' }))
    await writeFile(`${folder}/${name}`, `#!/bin/sh\ncd ${folder}\n${script}\n`, { mode: 0o755 })
  const { commands } = await asked({ steps: [{ type: 'pip_install', args: { packages: ['a', "b'$(c)"] } }] })
  const [file, ...args] = commands[0]!.argv
  const { status, stderr } = spawnSync(`${folder}/${file}`, args, { env: { PATH: folder }, encoding: 'utf8' })
  return { status, stderr, calls: await readFile(`${folder}/calls`, 'utf8').catch(() => '') }
}

test('steps: pip comes from Python itself or by apt-get where it is missing, else the step says so', async (context) => {
  const python = (modules: string) =>
    `case "$2 $3" in ${modules} "pip --version") test -e pip ;; "pip install") echo "$@" >>calls ;; *) exit 1 ;; esac`
  const installs = /^-m pip install -- a b'\$\(c\)\n$/m
  const apt = 'echo "apt-get $@" >>calls; test $1 = update || : >pip'
  const there = await pipInstall(context, { python3: python('"pip --version") ;;'), 'apt-get': apt })
  assert.deepEqual([there.status, there.calls], [0, "-m pip install -- a b'$(c)\n"])
  const own = await pipInstall(context, { python3: python('"ensurepip ") : >pip ;;'), 'apt-get': apt })
  assert.deepEqual([own.status, own.calls], [0, "-m pip install -- a b'$(c)\n"])
  const debian = await pipInstall(context, { python3: python(''), 'apt-get': apt })
  assert.equal(debian.status, 0, debian.stderr)
  assert.match(debian.calls, /^apt-get update\napt-get install --yes --no-install-recommends python3-pip\n/)
  assert.match(debian.calls, installs)
  const offline = await pipInstall(context, { python3: python(''), 'apt-get': 'echo no mirror >&2; exit 100' })
  assert.deepEqual([offline.status, offline.stderr, offline.calls], [100, 'no mirror\n', ''])
  const another = await pipInstall(context, { python3: python(''), 'apt-get': 'true' })
  assert.deepEqual([another.status, another.calls], [1, ''])
  const bare = await pipInstall(context, {})
  assert.equal(bare.status, 1)
  assert.match(bare.stderr, /^pip_install: the image has neither pip .* nor an apt-get/)
})

test('steps: folders and files need no program', async () => {
  const steps: ManifestStep[] = [
    { type: 'workdir', args: { path: '/a' } },
    { type: 'add_dir', args: { path: '/b', files: [{ relativePath: 'x', content: 'eA==' }] } },
    { type: 'add_file', args: { path: '/c', content: '' } },
  ]
  const { commands, paths } = await asked({ steps })
  assert.deepEqual(commands, [])
  assert.deepEqual(paths, ['/a/', '/b/', '/b/x 1', '/c 0'])
})

/** Two values for each argument that a hash must see; those of a file stand for the files of `add_dir`. */
const values: Record<string, [unknown, unknown]> = {
  packages: [['a'], ['b']],
  commands: [['a'], ['a', 'b']],
  cwd: ['/a', '/b'],
  user: ['a', 'b'],
  vars: [{ A: '1' }, { A: '2' }],
  path: ['/a', '/b'],
  content: ['eA==', 'eQ=='],
  relativePath: ['a', 'b'],
  files: [[], [{ relativePath: 'a', content: '' }]],
}
/** Has one value. */
const constant = new Set(['encoding'])
/** Arguments that a Dockerfile gives. */
const ofDockerfile: Partial<Record<StepType, string[]>> = { run: ['cwd', 'user'] }

/** Each argument that the schemas have, with what makes a step of its values. */
function schemaArguments() {
  return stepSchema.options.flatMap(({ shape }) => {
    const [type] = shape.type.values
    const names = [...Object.keys(shape.args.shape), ...(ofDockerfile[type!] ?? [])]
    const stepOf = (args: object) => ({ type, args }) as ManifestStep
    const own = { type, names, stepOf }
    if (!('files' in shape.args.shape)) return [own]
    const ofFiles = Object.keys(shape.args.shape.files.element.shape)
    return [own, { type, names: ofFiles, stepOf: (file: object) => stepOf({ path: '/a', files: [file] }) }]
  })
}

test('steps: the hash of a step sees every argument that its schema has', async () => {
  let count = 0
  for (const { type, names, stepOf } of schemaArguments()) {
    const varied = names.filter((name) => !constant.has(name))
    const first = Object.fromEntries(varied.map((name) => [name, values[name]?.[0]]))
    const hash = async (args: object) =>
      (await hashesOf((await plan({ steps: [stepOf(args)] })).outline, 'base')).contentHash
    for (const name of varied) {
      assert.ok(values[name], `${type}: ${name} has values here`)
      assert.notEqual(await hash(first), await hash({ ...first, [name]: values[name][1] }), `${type}: ${name}`)
      count += 1
    }
  }
  assert.ok(count >= 13, String(count))
})
