import { createHash } from 'node:crypto'
import { FairYield } from '../lib/async/fair-yield.ts'
import { TimeSlice } from '../lib/async/time-slice.ts'
import { defined } from '../lib/defined.ts'
import { sha256 } from '../lib/secret.ts'
import { assertEnvs, assertInput, type CommandDefaults } from '../sandbox/index.ts'
import { assertNoDockerfileParts, outlineOfDockerfile } from './dockerfile-manifest.ts'
import type { ImageLimits } from './image.ts'
import {
  assertCommand,
  envsOf,
  type FileOutline,
  type ManifestStep,
  outlineOf,
  revisionOf,
  type Step,
  textLengthOf,
} from './steps.ts'

/** What a client asks to build. The wire form, checked for its shape alone (`protocol/http/images.ts`). */
export interface Manifest {
  /** Name of an image. Default `base`. */
  base?: string | undefined
  /** In place of `base`: reference to an OCI image, such as `registry.example.com/team/tools:1`. */
  oci?: string | undefined
  steps?: ManifestStep[] | undefined
  /** Memory of the build, in MiB. */
  builderMemoryMB?: number | undefined
  /** Least memory of what starts from the image, in MiB. */
  runtimeMemoryMB?: number | undefined
  name?: string | undefined
  /** The image keeps memory: its sandboxes go on with the processes that run at the end of the build. */
  memory?: boolean | undefined
  /** Runs at the end of the build and on in each sandbox. Needs `memory`. */
  startCommand?: string | undefined
  /** Repeated until it succeeds; then the image is saved. Default: the start command listens on a TCP port. */
  readyCommand?: string | undefined
  /** Of sandboxes from the image. Given for a Dockerfile; else what `env` and `workdir` steps say. */
  defaults?: (CommandDefaults & { envs: Record<string, string> }) | undefined
  /** The template that the manifest was made of. */
  template?: { tag: string; dockerfile?: string } | undefined
  /** In place of `base`, `oci` and `steps`: the text of a Dockerfile. */
  dockerfile?: string | undefined
  /** Id of the files that it copies. */
  context?: string | undefined
  buildArgs?: Record<string, string> | undefined
  /** The stage to build. Default: the last one. */
  target?: string | undefined
  /** Uses no layer of an earlier build. */
  noCache?: boolean | undefined
  /** Contents in base64 by id. They are in memory, and nowhere else. */
  secrets?: Record<string, string> | undefined
}

/** A manifest without the contents of its files, as records keep it. */
export interface ManifestOutline extends Omit<Manifest, 'base' | 'steps' | 'name' | 'secrets'> {
  /** Empty for an image that an archive or a registry holds, or a Dockerfile that begins with `scratch`. */
  base: string
  /** Empty with a Dockerfile. */
  steps: Step[]
  /** The ids of the secrets that its build was given. */
  secrets?: string[]
}

/** What a build needs. */
export interface BuildPlan {
  outline: ManifestOutline
  /** The contents of the files, by hash. */
  contents: Map<string, Buffer>
  /** By id. */
  secrets: Map<string, Buffer>
}

/** Length of base64 that is decoded and hashed without yielding: a multiple of four. */
const partChars = 32 * 1024
/** Parts of the files of all manifests that are read in one iteration of the event loop. */
const parts = new FairYield(16)
/** Files of one step whose JSON is made at once. */
const filesAtOnce = 500
/** Bound of paths, commands, packages and variables, which a record of the image keeps and lists of images show. */
const textLengthMax = 2 * 2 ** 20
const builtInNames = new Set(['', 'base', 'ubuntu', 'default'])

/** Checks what the schema does not. Throws `invalid_request` with the field, before anything is built. Yields to the event loop. */
export async function planOf(
  manifest: Manifest,
  limits: Pick<ImageLimits, 'stepsMax' | 'filesMax'>,
): Promise<BuildPlan> {
  assertCommands(manifest)
  if (manifest.dockerfile !== undefined) return { ...outlineOfDockerfile(manifest, 'image'), contents: new Map() }
  assertNoDockerfileParts(manifest, 'image')
  const { base = 'base', steps = [], name: _name, secrets: _secrets, defaults: given, ...rest } = manifest
  assertInput(steps.length <= limits.stepsMax, 'image.steps', `must be at most ${limits.stepsMax}`)
  const files = steps.map(({ args }) => ('files' in args ? args.files.length : 'content' in args ? 1 : 0))
  const fileCount = files.reduce((sum, count) => sum + count, 0)
  assertInput(fileCount <= limits.filesMax, 'image.steps', `must have at most ${limits.filesMax} files`)
  assertInput(rest.oci === undefined || manifest.base === undefined, 'image.oci', 'is given together with image.base')
  const contents = new Map<string, Buffer>()
  const keep = async (content: string, field: string): Promise<FileOutline> => {
    const file = await decoded(content, field)
    contents.set(file.sha256, file.bytes)
    return { bytes: file.bytes.length, sha256: file.sha256 }
  }
  const outlined: Step[] = []
  const slice = new TimeSlice()
  let textLength = 0
  for (const [index, step] of steps.entries()) {
    await slice.next()
    textLength += textLengthOf(step)
    assertInput(textLength <= textLengthMax, 'image.steps', `have more than ${textLengthMax} characters of texts`)
    outlined.push(await outlineOf(inFolder(step, folderOf(outlined)), `image.steps.${index}.args`, keep))
  }
  const origin = rest.oci !== undefined ? '' : builtInNames.has(base) ? 'base' : base
  const defaults = given ?? defaultsOf(outlined)
  assertEnvs(defaults?.envs ?? {}, 'image.steps')
  return { outline: { ...rest, base: origin, steps: outlined, ...defined({ defaults }) }, contents, secrets: new Map() }
}

/** `run` in the folder of the last `workdir`. As an argument it is in the hash. */
function inFolder(step: ManifestStep, cwd: string | undefined): ManifestStep {
  if (step.type !== 'run' || cwd === undefined) return step
  const { commands, ...as } = step.args
  return { ...step, args: { commands, cwd, ...as } }
}

function folderOf(steps: readonly Step[]): string | undefined {
  return steps.findLast((step) => step.type === 'workdir')?.args.path
}

function defaultsOf(steps: readonly Step[]): ManifestOutline['defaults'] {
  const cwd = folderOf(steps)
  const envs: Record<string, string> = {}
  for (const step of steps) Object.assign(envs, envsOf(step))
  return cwd === undefined && Object.keys(envs).length === 0 ? undefined : { envs, ...defined({ cwd }) }
}

function assertCommands({ memory = false, startCommand, readyCommand }: Manifest): void {
  assertInput(
    startCommand === undefined || memory,
    'image.startCommand',
    'needs image.memory, which keeps what it starts',
  )
  assertInput(
    readyCommand === undefined || startCommand !== undefined,
    'image.readyCommand',
    'needs image.startCommand',
  )
  for (const [field, command] of Object.entries({ startCommand, readyCommand })) {
    if (command !== undefined) assertCommand(command, `image.${field}`)
  }
}

/**
 * The hash after each step, which depends on all before it; `origin` names the files that the build begins with. The last one is that of the
 * image: memory and what runs in it count as a step.
 */
export async function hashesOf(
  { steps, memory, startCommand, readyCommand, defaults }: ManifestOutline,
  origin: string,
): Promise<{ layerHashes: string[]; contentHash: string }> {
  const chain: string[] = []
  const slice = new TimeSlice()
  let hash = sha256(JSON.stringify({ base: origin }))
  for (const step of steps) {
    const next = createHash('sha256').update(`${hash} `)
    for (const piece of jsonOf(step)) {
      await slice.next()
      next.update(piece)
    }
    chain.push((hash = next.digest('hex')))
  }
  const end = { memory, startCommand, readyCommand, defaults }
  const contentHash = memory || defaults ? sha256(`${hash} ${JSON.stringify(end)}`) : hash
  return { layerHashes: chain, contentHash }
}

/** `JSON.stringify` of a step, in pieces. */
function* jsonOf(step: Step): Generator<string> {
  if (!('files' in step.args)) {
    yield JSON.stringify({ ...step, ...revisionOf(step) })
    return
  }
  const { files, ...args } = step.args
  yield `${JSON.stringify({ type: step.type, args }).slice(0, -2)},"files":[`
  for (let at = 0; at < files.length; at += filesAtOnce) {
    const some = JSON.stringify(files.slice(at, at + filesAtOnce)).slice(1, -1)
    yield at === 0 ? some : `,${some}`
  }
  yield ']}}'
}

/** Decodes base64, with or without padding. Throws for any other character, which Node would skip. Yields to the event loop between parts. */
async function decoded(content: string, field: string): Promise<{ bytes: Buffer; sha256: string }> {
  const length = content.length - (content.endsWith('==') ? 2 : content.endsWith('=') ? 1 : 0)
  assertInput(length % 4 !== 1, field, 'must be base64')
  const bytes = Buffer.allocUnsafeSlow(Math.floor((length * 3) / 4))
  const hash = createHash('sha256')
  let end = 0
  for (let at = 0; at < length; at += partChars) {
    await parts.next()
    const part = content.slice(at, Math.min(at + partChars, length))
    const written = bytes.write(part, end, 'base64')
    assertInput(written === Math.floor((part.length * 3) / 4), field, 'must be base64')
    hash.update(bytes.subarray(end, end + written))
    end += written
  }
  return { bytes, sha256: hash.digest('hex') }
}
