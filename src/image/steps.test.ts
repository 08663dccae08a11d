import assert from 'node:assert/strict'
import { test } from 'node:test'
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
  assert.deepEqual(pip?.argv, ['python3', '-m', 'pip', 'install', '--', 'requests>=2', 'flask[async]'])
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
