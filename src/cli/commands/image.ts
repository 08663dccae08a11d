import { open, readFile } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { Command } from 'commander'
import {
  type Atoll,
  type BuildEvent,
  Image,
  type ImageInfo,
  type ImageManifest,
  type TemplateInfo,
} from '../../../sdk/src/index.ts'
import { baseImage, tellBuild } from '../build.ts'
import { chosen, each, type AllFlags } from '../each.ts'
import { UsageError } from '../exit-codes.ts'
import { writeFields } from '../fields.ts'
import { type ListFlags, writeList } from '../list.ts'
import { examples } from '../options.ts'
import { hint, printable, when, write, writeJson, writeLine } from '../output.ts'
import { counted, Progress } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'
import { defaultName, withRegistry } from '../image-name.ts'
import { sizeText } from '../units.ts'

/** A large archive takes its time. */
const importTimeoutMs = 2 * 3_600_000

interface BuildFlags extends Flags {
  background?: boolean
}

interface AddFlags extends Flags {
  name?: string
}

interface LogFlags extends Flags {
  follow?: boolean
}

export function addImage(program: Command): void {
  const image = program
    .command('image')
    .description('what sandboxes start from')
    .addHelpText('after', examples('atoll image ls', 'atoll image build tools steps.json'))
  image
    .command('build')
    .description('build an image from the steps in a JSON file ("-" for standard input), and print its id')
    .addHelpText('after', examples('atoll image build tools steps.json'))
    .argument('<name>')
    .argument('<file>')
    .option('--background', 'do not wait for the end')
    .action(async (name: string, file: string, _options: BuildFlags, command: Command) => {
      const { background, json, ...flags } = command.optsWithGlobals<BuildFlags>()
      const client = await clientOf(flags)
      const manifest = await manifestIn(file)
      const { info } = background
        ? await Image.begin(name, manifest, { client })
        : await Image.build(name, manifest, { client, onEvent: tellBuild })
      await answer(info, json)
      if (!json) hint(`atoll create --template ${name}`)
    })
  image
    .command('add')
    .description('fetch an image from a registry, and print its id; without a registry in front it is one of docker.io')
    .addHelpText('after', examples('atoll image add python:3.12', 'atoll image add ghcr.io/team/tools:1 --name tools'))
    .argument('<reference>')
    .option('--name <name>', 'its name here (default: that of the repository and the tag, such as python-3.12)')
    .action(async (reference: string, _options: AddFlags, command: Command) => {
      const { name: given, json, ...flags } = command.optsWithGlobals<AddFlags>()
      const oci = withRegistry(reference)
      const name = given ?? defaultName(oci)
      const { info } = await Image.build(name, { oci }, { client: await clientOf(flags), onEvent: tellBuild })
      await answer(info, json)
      if (!json) hint(`atoll create --template ${name}`)
    })
  image
    .command('import')
    .description('make an image of an OCI or docker archive ("-" for standard input), and print its id')
    .addHelpText('after', examples('docker save tools | atoll image import tools -'))
    .argument('<name>')
    .argument('<file>')
    .action(async (name: string, file: string, _options: Flags, command: Command) => {
      const { json, ...flags } = command.optsWithGlobals<Flags>()
      const options = { client: await clientOf(flags), requestTimeoutMs: importTimeoutMs }
      const handle = file === '-' ? undefined : await open(file)
      const progress = new Progress(name)
      const bytes = (await handle?.stat())?.size
      try {
        const input = (handle?.createReadStream() ?? process.stdin) as AsyncIterable<Buffer>
        const archive = counted(input, (sent) => progress.update(sent, bytes))
        const body = Readable.toWeb(Readable.from(archive, { objectMode: false })) as ReadableStream<Uint8Array>
        await answer((await Image.fromArchive(name, body, options)).info, json)
      } finally {
        progress.end()
        await handle?.close()
      }
      if (!json) hint(`atoll create --template ${name}`)
    })
  image
    .command('log')
    .description('print what the build of an image has told, also of one that failed, for thirty days')
    .addHelpText('after', examples('atoll image log tools'))
    .argument('<image>')
    .option('-f, --follow', 'while it is being built: print what comes, and end by its result')
    .action(async (nameOrId: string, _options: LogFlags, command: Command) => {
      const { follow, json, ...flags } = command.optsWithGlobals<LogFlags>()
      const found = await Image.get(nameOrId, { client: await clientOf(flags) })
      if (follow && found.info.status === 'building') {
        const { info } = await found.follow(json ? {} : { onEvent: print })
        if (json) await writeJson(info)
        return
      }
      const log = await found.log()
      if (json) await writeJson({ log })
      else await write(process.stdout.isTTY ? printable(log) : log)
    })
  image
    .command('follow')
    .description('print what a build tells until its end')
    .addHelpText('after', examples('atoll image follow tools'))
    .argument('<image>')
    .action(async (nameOrId: string, _options: Flags, command: Command) => {
      const { json, ...flags } = command.optsWithGlobals<Flags>()
      const found = await Image.get(nameOrId, { client: await clientOf(flags) })
      await answer((await found.follow({ onEvent: tellBuild })).info, json)
    })
  addList(image)
  image
    .command('get')
    .description('print what is known of an image')
    .addHelpText('after', examples('atoll image get tools'))
    .argument('<image>')
    .action(async (nameOrId: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const { info } = await Image.get(nameOrId, { client: await clientOf(flags) })
      await writeFields(info, flags)
    })
  image
    .command('rm')
    .description('delete images of your own; sandboxes from them run on')
    .addHelpText('after', examples('atoll image rm tools'))
    .argument('[image...]', 'a name or id')
    .option('--all', 'every image of your own that has a name')
    .option('--yes', 'confirms --all')
    .action(async (names: string[], _options: AllFlags, command: Command) => {
      const flags = command.optsWithGlobals<AllFlags>()
      const client = await clientOf(flags)
      const listed = async () => (await Image.list({ client })).map(({ info }) => info.id)
      const wanted = await chosen(names, flags, 'image', listed)
      await each(wanted, flags, async (name) => (await Image.get(name, { client })).delete())
    })
}

/** An image as a list shows it: one of this organisation, or what is known of another. */
interface Listed extends Partial<ImageInfo> {
  name: string
  kind: 'installed' | 'own' | 'shared'
  sizeBytes?: number | undefined
}

function addList(image: Command): void {
  image
    .command('ls')
    .description(
      'list what sandboxes can be started from: the installed image, your own, and those that the server shares',
    )
    .addHelpText('after', examples('atoll image ls', 'atoll create --template python'))
    .option('-q, --quiet', 'print names alone')
    .action(async (_options: ListFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      const images = await startable(await clientOf(flags))
      await writeList(images, flags, {
        NAME: (one) => one.name,
        KIND: (one) => one.kind,
        STATUS: (one) => one.status,
        SIZE: ({ sizeBytes }) => (sizeBytes === undefined ? undefined : sizeText(sizeBytes)),
        CREATED: (one) => when(one.createdAt),
        USED: (one) => when(one.lastUsedAt),
        ID: (one) => one.id,
      })
    })
}

/** An own image is in its place of the list, with all that is known of it. One of the server's has its name as its id until it is built. */
async function startable(client: Atoll): Promise<Listed[]> {
  const [named, own, checkpoints] = await Promise.all([
    client.json<TemplateInfo[]>('GET', '/api/templates'),
    client.json<ImageInfo[]>('GET', '/api/snapshots'),
    Array.fromAsync(client.checkpoints({ owner: 'image' })),
  ])
  const images = new Map(own.map((info) => [info.id, info]))
  const sizes = new Map(checkpoints.map(({ id, sizeBytes }) => [id, sizeBytes]))
  const listed = named.map(({ id, name, status, createdAt }): Listed => {
    const info = images.get(id)
    if (info !== undefined) return { ...info, name, kind: 'own', sizeBytes: sizes.get(info.checkpointId ?? '') }
    if (id === name) return { name, kind: 'shared' }
    return { id, name, kind: 'shared', status: status === 'error' ? 'failed' : status, createdAt }
  })
  return [{ name: baseImage, kind: 'installed', status: 'ready' }, ...listed]
}

async function manifestIn(file: string): Promise<ImageManifest> {
  const content = file === '-' ? await text(process.stdin) : await readFile(file, 'utf8')
  try {
    return JSON.parse(content) as ImageManifest
  } catch {
    throw new UsageError(`${file} is not JSON`)
  }
}

async function answer(info: ImageInfo, json: boolean | undefined): Promise<void> {
  if (json) await writeJson(info)
  else await writeLine(info.id)
}

function print(event: BuildEvent): void {
  const words = event.event === 'build_log' ? `${event.message}\n` : event.data
  process.stdout.write(process.stdout.isTTY ? printable(words) : words)
}
