import { readFile, stat } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { Option, type Command } from 'commander'
import {
  Image,
  type Atoll,
  type ContextProgress,
  type DockerfileSource,
  type ImageManifest,
} from '../../../sdk/src/index.ts'
import { buildTeller } from '../build.ts'
import { buildArgsOf, secretsOf } from './build-inputs.ts'
import { assertImageName } from '../image-name.ts'
import { UsageError } from '../exit-codes.ts'
import { examples, list } from '../options.ts'
import { hint, note, writeJson, writeLine } from '../output.ts'
import { Progress } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'
import { sizeText } from '../units.ts'

interface BuildFlags extends Flags {
  file?: string
  buildArg?: string[]
  target?: string
  /** Commander's name for `--no-cache`. */
  cache?: boolean
  secret?: string[]
  replace?: boolean
  background?: boolean
}

/** Standard input. */
const standard = '-'
/** What was left out is told up to so many names. */
const namesMax = 5

export function addImageBuild(image: Command): void {
  const build = image
    .command('build')
    .description(
      'build an image from the Dockerfile of a folder and the files that it copies, and print its id.\n\n' +
        'Files that .dockerignore names stay here, of the others those travel that the server lacks. In place of the folder a ' +
        'Dockerfile may be named, or a manifest of steps: a .json file, or - for standard input.',
    )
    .addHelpText(
      'after',
      examples(
        'atoll image build tools',
        'atoll image build web:2 app -f app/web.Dockerfile --build-arg VERSION=2 --replace',
        'atoll image build tools --secret id=npm,src=.npmrc --secret id=token,env=TOKEN',
        'atoll image build tools steps.json',
      ),
    )
    .argument('<name>', 'NAME or NAME:TAG')
    .argument('[folder]', 'what COPY and ADD read', '.')
    .option('-f, --file <file>', 'the Dockerfile, - for standard input (default: Dockerfile in the folder)')
    .option(
      '--build-arg <name=value>',
      'the value of an ARG, without =VALUE that of the environment; may be repeated',
      list,
    )
    .option('--target <stage>', 'the stage to build (default: the last one)')
    .option('--no-cache', 'run all instructions again')
    .option(
      '--secret <id=…,src=file>',
      'a file or, with env=NAME, a variable for RUN --mount=type=secret; may be repeated',
      list,
    )
    .option('--replace', 'give a name that is taken to the new image, once it is ready')
    .option('--background', 'do not wait for the end of the build')
    .action(async (name: string, path: string, _options: BuildFlags, command: Command) => {
      const flags = command.optsWithGlobals<BuildFlags>()
      const { json, background, replace } = flags
      assertImageName(name)
      const how = { client: await clientOf(flags), replace, isAwaited: background !== true }
      const { info } = await (isManifest(path) ? buildManifest : buildFolder)(name, path, flags, how)
      if (json) return await writeJson(info)
      await writeLine(info.id)
      hint(`atoll create --template ${name}`)
    })
  refuseForeign(build)
}

/** Flags of `docker build`, with what serves here. They are in no help. */
const foreignFlags: Record<string, string> = {
  '-t, --tag <name>': 'the name stands without it, as in "atoll image build NAME FOLDER"',
  '--platform <platform>': 'a build is for the machine of the server',
  '--pull': 'a tag is fetched once; a digest, as in FROM python@sha256:…, names another content',
  '--progress <type>': 'lines are plain where standard error is no terminal',
  '--push': '"atoll image push" sends an image to a registry',
}

function refuseForeign(build: Command): void {
  for (const [flags, instead] of Object.entries(foreignFlags)) {
    const option = new Option(flags).hideHelp()
    build.addOption(option).on(`option:${option.name()}`, () => {
      throw new UsageError(`there is no flag ${option.short ?? option.long}: ${instead}`)
    })
  }
}

interface How {
  client: Atoll
  replace: boolean | undefined
  /** Whether the end of the build is waited for. */
  isAwaited: boolean
}

function isManifest(path: string): boolean {
  return path === standard || path.endsWith('.json')
}

async function buildManifest(name: string, path: string, flags: BuildFlags, how: How): Promise<Image> {
  const { file, buildArg, target, secret, cache } = flags
  const given = { '--file': file, '--build-arg': buildArg, '--target': target, '--secret': secret }
  const flag = cache === false ? '--no-cache' : Object.entries(given).find(([, value]) => value !== undefined)?.[0]
  if (flag !== undefined) throw new UsageError(`${flag} is for a Dockerfile, and ${path} a manifest of steps`)
  const manifest = await manifestIn(path)
  const { isAwaited, ...options } = how
  if (!isAwaited) return await Image.begin(name, manifest, options)
  return await Image.build(name, manifest, { ...options, onEvent: buildTeller() })
}

async function manifestIn(file: string): Promise<ImageManifest> {
  const content = file === standard ? await text(process.stdin) : await readFile(file, 'utf8')
  try {
    return JSON.parse(content) as ImageManifest
  } catch {
    if (file !== standard) throw new UsageError(`${file} is not JSON`)
    throw new UsageError('standard input is not JSON; "-f -" reads a Dockerfile from it')
  }
}

async function buildFolder(name: string, path: string, flags: BuildFlags, how: How): Promise<Image> {
  const { file, buildArg, target, secret, cache } = flags
  const image = Image.fromDockerfile(await sourceOf(path, file))
  const asked = {
    buildArgs: buildArg === undefined ? undefined : buildArgsOf(buildArg),
    target,
    noCache: cache === false ? true : undefined,
    secrets: secret === undefined ? undefined : await secretsOf(secret),
  }
  const progress = new Progress('context')
  const onProgress = (one: ContextProgress) => tellContext(one, progress)
  const { isAwaited, ...options } = how
  try {
    if (!isAwaited) return await image.begin(name, { ...asked, ...options, onProgress })
    return await image.build(name, { ...asked, ...options, onProgress, onEvent: buildTeller() })
  } finally {
    progress.end()
  }
}

async function sourceOf(path: string, file: string | undefined): Promise<string | DockerfileSource> {
  const isFolder = (await stat(path)).isDirectory()
  if (file === undefined) return path
  if (!isFolder) throw new UsageError(`${path} is no folder, as it must be with --file`)
  if (file !== standard) return { context: path, dockerfile: file }
  return { context: path, text: await text(process.stdin) }
}

function tellContext(one: ContextProgress, progress: Progress): void {
  if (one.phase === 'reading') progress.tell(`hashing ${one.files} of ${one.total} files`)
  else if (one.phase === 'sending') progress.update(one.bytes, one.total)
  else {
    progress.end()
    const { files, sentFiles, sentBytes, leftOut } = one
    const sent = `${sentFiles} of ${files} files sent (${sizeText(sentBytes)})`
    note(`context: ${sentFiles === 0 ? `the server has all of ${files} files` : sent}`)
    if (leftOut.length === 0) return
    const names = leftOut.slice(0, namesMax).map((name) => JSON.stringify(name))
    note(`sockets are left out: ${names.join(', ')}${leftOut.length > namesMax ? ' …' : ''}`)
  }
}
