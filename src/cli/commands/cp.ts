import { stat } from 'node:fs/promises'
import { posix } from 'node:path'
import type { Command } from 'commander'
import { type Atoll, type Files, Sandbox, type TransferOptions } from '../../../sdk/src/index.ts'
import { UsageError } from '../exit-codes.ts'
import { onExit } from '../interrupt.ts'
import { type Location, nameOf, parseLocation, targetOf } from '../location.ts'
import { examples, list } from '../options.ts'
import { write } from '../output.ts'
import { counted, Progress } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  recursive?: boolean
  exclude?: string[]
  gitignore?: boolean
  user?: string
}

/** Standard input or output in place of a path. */
const standard = '-'

export function addCp(program: Command): void {
  program
    .command('cp')
    .description('copy files and folders into a sandbox, out of it, or from one to another')
    .usage('[options] <source...> <target>')
    .addHelpText(
      'after',
      examples(
        'atoll cp -r src sb-0123456789abcdef:/workspace',
        'atoll cp -r --gitignore --exclude "*.log" . sb-0123456789abcdef:/workspace/app',
        'atoll cp a.txt b.txt sb-0123456789abcdef:/workspace',
        'atoll cp sb-0123456789abcdef:/etc/hosts -',
        'atoll cp -r sb-0123456789abcdef:/workspace sb-fedcba9876543210:/',
      ),
    )
    .argument('<path...>', 'sources, then the target: a path, SANDBOX:/path, or - for standard input or output')
    .option('-r, --recursive', 'copy a folder with all that it holds; to or from -, as a tar archive')
    .option('--exclude <pattern>', 'what stays out of a folder, as in .gitignore; may be repeated', list)
    .option('--gitignore', 'leave out what the .gitignore files of a folder here name, and .git')
    .option('--user <name>', 'who reads or writes there, by name or id')
    .action(async (paths: string[], _options: Options, command: Command) => {
      const flags = command.optsWithGlobals<Options>()
      const sources = paths.slice(0, -1)
      const target = paths.at(-1) ?? ''
      if (sources.length === 0) throw new UsageError(`there is no target: atoll cp ${target} TARGET`)
      await copyAll(sources.map(sideOf), sideOf(target), flags)
    })
}

/** A side of the copy; undefined is standard input or output. */
type Side = Location | undefined

function sideOf(text: string): Side {
  return text === standard ? undefined : parseLocation(text)
}

async function copyAll(sources: readonly Side[], target: Side, flags: Options): Promise<void> {
  const copy = new Copy(await clientOf(flags), flags)
  for (const source of sources) copy.assertPossible(source, target)
  if (sources.length > 1) await copy.assertTogether(sources, target)
  for (const source of sources) await copy.one(source, target)
}

class Copy {
  readonly #client: Atoll
  readonly #flags: Options
  readonly #sandboxes = new Map<string, Promise<Sandbox>>()

  constructor(client: Atoll, flags: Options) {
    this.#client = client
    this.#flags = flags
  }

  /** Throws for what no copy can be, before the first begins. */
  assertPossible(source: Side, target: Side): void {
    const { recursive = false, gitignore = false, exclude = [] } = this.#flags
    if (source?.sandbox === undefined && target?.sandbox === undefined) {
      throw new UsageError('one of source and target must be in a sandbox, as SANDBOX:/path')
    }
    if (source === undefined && !recursive && target?.path.endsWith('/')) {
      throw new UsageError(`standard input has no name: write ${target.sandbox}:${target.path}NAME`)
    }
    if (gitignore && (source === undefined || source.sandbox !== undefined)) {
      throw new UsageError('--gitignore is for a source on this machine; --exclude works for all')
    }
    const negated = exclude.find((pattern) => pattern.startsWith('!'))
    if (negated !== undefined && source?.sandbox !== undefined) {
      throw new UsageError(`--exclude ${JSON.stringify(negated)}: out of a sandbox "!" has no meaning`)
    }
  }

  /** Several sources go into a folder, each under a name of its own. */
  async assertTogether(sources: readonly Side[], target: Side): Promise<void> {
    if (target === undefined || sources.includes(undefined)) throw new UsageError('- goes with one source and a target')
    if (!(await this.#isFolder(target))) throw new UsageError(`${textOf(target)} is no folder that is there`)
    const names = sources.map((source) => nameOf(source?.path ?? '')).filter((name) => name !== undefined)
    const twice = names.find((name, index) => names.indexOf(name) !== index)
    if (twice !== undefined) throw new UsageError(`two sources would be ${JSON.stringify(twice)} in ${textOf(target)}`)
  }

  async one(source: Side, target: Side): Promise<void> {
    if (source === undefined && target !== undefined) return await this.#fromInput(target)
    if (source === undefined) return
    const isFolder =
      source.sandbox === undefined ? (await stat(source.path)).isDirectory() : await this.#isFolder(source)
    if (isFolder && !this.#flags.recursive) throw new UsageError(`${textOf(source)} is a folder: add -r`)
    if (target === undefined) return await this.#toOutput(source, isFolder)
    const place = targetOf(source.path, target.path, await this.#isFolder(target))
    if (isFolder && source.sandbox !== undefined && target.sandbox !== undefined && isBelow(place, source.path)) {
      const [from, to] = [await this.#sandbox(source), await this.#sandbox(target)]
      if (from.id === to.id) throw new UsageError(`${textOf(source)} cannot be copied into itself`)
    }
    await transferring(textOf({ ...target, path: place }), async (progress) => {
      const options = { ...progress, ...this.#rules() }
      if (source.sandbox === undefined) await (await this.#files(target)).upload(source.path, place, options)
      else if (target.sandbox === undefined) await (await this.#files(source)).download(source.path, place, options)
      else await (await this.#files(source)).copy(source.path, await this.#files(target), place, options)
    })
  }

  async #fromInput(target: Location): Promise<void> {
    const files = await this.#files(target)
    await transferring(textOf(target), async ({ onProgress }) => {
      const input = counted(process.stdin as AsyncIterable<Buffer>, (bytes) => onProgress?.({ bytes }))
      const { user } = this.#flags
      if (this.#flags.recursive) await files.writeTar(target.path, input, { user })
      else await files.write(target.path, ReadableStream.from<Uint8Array>(input), { user })
    })
  }

  async #toOutput(source: Location, isFolder: boolean): Promise<void> {
    const files = await this.#files(source)
    const { user } = this.#flags
    const output: AsyncIterable<Uint8Array> = isFolder
      ? files.readTar(source.path, this.#rules())
      : await files.readStream(source.path, { user })
    for await (const data of output) await write(data)
  }

  #rules(): Pick<TransferOptions, 'user' | 'exclude' | 'gitignore'> {
    const { user, exclude, gitignore } = this.#flags
    return { user, exclude, gitignore }
  }

  async #files(location: Location): Promise<Files> {
    return (await this.#sandbox(location)).files
  }

  async #sandbox({ sandbox = '' }: Location): Promise<Sandbox> {
    const known = this.#sandboxes.get(sandbox) ?? Sandbox.connect(sandbox, { client: this.#client })
    this.#sandboxes.set(sandbox, known)
    return await known
  }

  async #isFolder(location: Location): Promise<boolean> {
    if (location.sandbox === undefined) return await isLocalFolder(location.path)
    const sandbox = await this.#sandbox(location)
    const { exitCode } = await sandbox.run('test', { args: ['-d', location.path], user: this.#flags.user })
    return exitCode === 0
  }
}

function isBelow(path: string, folder: string): boolean {
  const rest = posix.relative(folder, path)
  return rest !== '..' && !rest.startsWith('../')
}

function textOf({ sandbox, path }: Location): string {
  return sandbox === undefined ? path : `${sandbox}:${path}`
}

/** Shows how far the transfer is, also where a signal ends it. */
async function transferring(
  target: string,
  work: (options: Required<Pick<TransferOptions, 'onProgress'>>) => Promise<void>,
): Promise<void> {
  const progress = new Progress(target)
  const told = onExit(() => process.stderr.write(`atoll: the copy to ${target} was not completed\n`))
  try {
    await work({ onProgress: ({ bytes, total }) => progress.update(bytes, total) })
  } finally {
    told()
    progress.end()
  }
}

async function isLocalFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory()
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return false
    throw error
  }
}
