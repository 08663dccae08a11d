import { createHash } from 'node:crypto'
import { posix } from 'node:path'
import { FairYield } from '../lib/async/fair-yield.ts'
import { TimeSlice } from '../lib/async/time-slice.ts'
import { assertEnvs, assertInput, assertPath, type CommandDefaults } from '../sandbox/index.ts'
import type { ImageLimits } from './image.ts'

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
  /** Of a Dockerfile: what a sandbox from the image has where nothing else is asked for. */
  defaults?: (CommandDefaults & { envs: Record<string, string> }) | undefined
  /** What it was made of. */
  template?: { tag: string; dockerfile: string } | undefined
}

export type ManifestStep =
  | { type: 'apt_install' | 'pip_install'; args: { packages: string[] } }
  | { type: 'run'; args: { commands: string[]; cwd?: string; user?: string } }
  | { type: 'env'; args: { vars: Record<string, string> } }
  | { type: 'workdir'; args: { path: string } }
  | { type: 'add_file'; args: { path: string; content: string; encoding?: 'base64' | undefined } }
  | { type: 'add_dir'; args: { path: string; files: { relativePath: string; content: string }[] } }

/** A file of a step. Its content is kept for the build alone (`BuildFiles`). */
export interface FileOutline {
  bytes: number
  sha256: string
}

export type Step =
  | Exclude<ManifestStep, { type: 'add_file' | 'add_dir' }>
  | { type: 'add_file'; args: { path: string } & FileOutline }
  | { type: 'add_dir'; args: { path: string; files: ({ relativePath: string } & FileOutline)[] } }

/** A manifest without the contents of its files, as records keep it. */
export interface ManifestOutline extends Omit<Manifest, 'base' | 'steps' | 'name'> {
  /** Empty for an image that an archive or a registry holds. */
  base: string
  steps: Step[]
}

/** What a build needs. */
export interface BuildPlan {
  outline: ManifestOutline
  /** The contents of the files, by hash. */
  contents: Map<string, Buffer>
}

/** Of base64, decoded and hashed at once: a multiple of four. */
const partChars = 32 * 1024
/** Parts of the files of all manifests that are read in one iteration of the event loop. */
const parts = new FairYield(16)
/** Files of one step whose JSON is made at once. */
const filesAtOnce = 500
/** The commands of a step are one argument of a shell, which the kernel bounds (execve(2): 128 KiB). */
const commandBytesMax = 120 * 1024
/** Of paths, commands, packages and variables: what a record of the image keeps, and lists of images show. */
const textLengthMax = 2 * 2 ** 20
const builtInNames = new Set(['', 'base', 'ubuntu', 'default'])
const packagePattern = /^[A-Za-z0-9][^\0\s]{0,255}$/

/** Checks what shapes do not. Throws `invalid_request` with the field, before anything is built. Other work of the process goes on meanwhile. */
export async function planOf(
  manifest: Manifest,
  limits: Pick<ImageLimits, 'stepsMax' | 'filesMax'>,
): Promise<BuildPlan> {
  const { base = 'base', steps = [], name: _name, ...rest } = manifest
  assertInput(steps.length <= limits.stepsMax, 'image.steps', `must be at most ${limits.stepsMax}`)
  const files = steps.map(({ type, args }) => (type === 'add_file' ? 1 : type === 'add_dir' ? args.files.length : 0))
  assertInput(
    files.reduce((sum, count) => sum + count, 0) <= limits.filesMax,
    'image.steps',
    `must have at most ${limits.filesMax} files`,
  )
  assertCommands(rest)
  assertInput(rest.oci === undefined || manifest.base === undefined, 'image.oci', 'is given together with image.base')
  const contents = new Map<string, Buffer>()
  const outlined: Step[] = []
  const slice = new TimeSlice()
  let textLength = 0
  for (const [index, step] of steps.entries()) {
    await slice.next()
    textLength += textLengthOf(step)
    assertInput(textLength <= textLengthMax, 'image.steps', `have more than ${textLengthMax} characters of texts`)
    outlined.push(await outlineOf(step, `image.steps.${index}.args`, contents))
  }
  const origin = rest.oci !== undefined ? '' : builtInNames.has(base) ? 'base' : base
  return { outline: { ...rest, base: origin, steps: outlined }, contents }
}

function textLengthOf(step: ManifestStep): number {
  return textsOf(step).reduce((sum, text) => sum + text.length, 0)
}

function textsOf({ type, args }: ManifestStep): string[] {
  switch (type) {
    case 'apt_install':
    case 'pip_install':
      return args.packages
    case 'run':
      return args.commands
    case 'env':
      return Object.entries(args.vars).flat()
    case 'workdir':
    case 'add_file':
      return [args.path]
    case 'add_dir':
      return [args.path, ...args.files.map(({ relativePath }) => relativePath)]
    default:
      return type satisfies never
  }
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

async function outlineOf(step: ManifestStep, field: string, contents: Map<string, Buffer>): Promise<Step> {
  const take = async (content: string, of: string): Promise<FileOutline> => {
    const { bytes, sha256 } = await decoded(content, of)
    contents.set(sha256, bytes)
    return { bytes: bytes.length, sha256 }
  }
  if (step.type === 'add_file') {
    const { path, content } = step.args
    assertTarget(path, `${field}.path`)
    return { type: step.type, args: { path, ...(await take(content, `${field}.content`)) } }
  }
  if (step.type === 'add_dir') {
    const { path, files } = step.args
    assertTarget(path, `${field}.path`)
    const taken: (FileOutline & { relativePath: string })[] = []
    for (const [at, { relativePath, content }] of files.entries()) {
      assertRelative(relativePath, `${field}.files.${at}.relativePath`)
      taken.push({ relativePath, ...(await take(content, `${field}.files.${at}.content`)) })
    }
    return { type: step.type, args: { path, files: taken } }
  }
  assertStep(step, field)
  return step
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
  let hash = hashOf(JSON.stringify({ base: origin }))
  for (const step of steps) {
    const next = createHash('sha256').update(`${hash} `)
    for (const piece of jsonOf(step)) {
      await slice.next()
      next.update(piece)
    }
    chain.push((hash = next.digest('hex')))
  }
  const end = { memory, startCommand, readyCommand, defaults }
  const contentHash = memory || defaults ? hashOf(`${hash} ${JSON.stringify(end)}`) : hash
  return { layerHashes: chain, contentHash }
}

/** `JSON.stringify` of a step, in pieces. */
function* jsonOf(step: Step): Generator<string> {
  if (step.type !== 'add_dir') {
    yield JSON.stringify(step)
    return
  }
  const { path, files } = step.args
  yield `${JSON.stringify({ type: step.type, args: { path } }).slice(0, -2)},"files":[`
  for (let at = 0; at < files.length; at += filesAtOnce) {
    const some = JSON.stringify(files.slice(at, at + filesAtOnce)).slice(1, -1)
    yield at === 0 ? some : `,${some}`
  }
  yield ']}}'
}

/** One line about a step, for logs. */
export function summaryOf(step: Step): string {
  switch (step.type) {
    case 'apt_install':
    case 'pip_install':
      return shortened(step.args.packages.join(' '))
    case 'run':
      return shortened(step.args.commands.join(' && '))
    case 'env':
      return shortened(Object.keys(step.args.vars).join(' '))
    case 'workdir':
    case 'add_file':
      return shortened(step.args.path)
    case 'add_dir':
      return shortened(`${step.args.path} (${step.args.files.length} files)`)
  }
}

function shortened(text: string): string {
  const line = text.replaceAll(/\s+/g, ' ').trim()
  return line.length > 120 ? `${line.slice(0, 119)}…` : line
}

function assertStep(step: Exclude<ManifestStep, { type: 'add_file' | 'add_dir' }>, field: string): void {
  switch (step.type) {
    case 'apt_install':
    case 'pip_install':
      for (const [index, name] of step.args.packages.entries()) {
        assertInput(packagePattern.test(name), `${field}.packages.${index}`, 'must be the name of a package')
      }
      return
    case 'run': {
      const { commands } = step.args
      const characters = commands.reduce((sum, { length }) => sum + length, 0)
      assertInput(
        characters <= commandBytesMax,
        `${field}.commands`,
        `must be at most ${commandBytesMax} bytes together`,
      )
      for (const [index, command] of commands.entries()) assertCommand(command, `${field}.commands.${index}`)
      return
    }
    case 'env':
      assertEnvs(step.args.vars, `${field}.vars`)
      for (const [name, value] of Object.entries(step.args.vars)) {
        // Neither `/etc/environment` nor a line of `export` can hold it.
        assertInput(!/[\n\r]/.test(value), `${field}.vars.${name}`, 'must be one line')
      }
      return
    case 'workdir':
      assertTarget(step.args.path, `${field}.path`)
  }
}

function assertCommand(command: string, field: string): void {
  assertInput(command.length <= commandBytesMax, field, `must be at most ${commandBytesMax} bytes`)
  assertInput(command.trim() !== '', field, 'must not be empty')
  assertInput(!command.includes('\0'), field, 'must not contain NUL')
}

/** An absolute path inside the image. The sandbox's own root bounds it. */
function assertTarget(path: string, field: string): void {
  assertPath(path, field)
  assertInput(!path.split('/').includes('..'), field, 'must not contain `..`')
}

function assertRelative(path: string, field: string): void {
  assertInput(!path.startsWith('/'), field, 'must be relative')
  assertPath(`/${path}`, field)
  const cleaned = posix.normalize(path)
  const names = path.split('/')
  assertInput(
    cleaned !== '.' && !cleaned.endsWith('/') && !names.includes('..'),
    field,
    'must name a file in the folder',
  )
}

/** Throws for text that is not base64: Node leaves out what is none. Padding may be missing. Yields to the event loop between parts. */
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

function hashOf(data: string | Buffer): string {
  return createHash('sha256').update(data).digest('hex')
}
