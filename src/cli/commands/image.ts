import { open } from 'node:fs/promises'
import { Readable } from 'node:stream'
import type { Command } from 'commander'
import { Image, type ImageInfo } from '../../../sdk/src/index.ts'
import { buildTeller } from '../build.ts'
import { chosen, each, type AllFlags } from '../each.ts'
import { writeFields } from '../fields.ts'
import { examples } from '../options.ts'
import { hint, printable, write, writeJson, writeLine } from '../output.ts'
import { counted, Progress } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'
import { withRegistry } from '../../lib/image-reference.ts'
import { defaultName } from '../image-name.ts'
import { addImageBuild } from '../image/build.ts'
import { addImageList } from '../image/list.ts'
import { addImageNames, transferTimeoutMs } from '../image/names.ts'
import { addPrune } from '../image/prune.ts'

interface ReplaceFlags extends Flags {
  replace?: boolean
}

interface AddFlags extends ReplaceFlags {
  name?: string
}

interface LogFlags extends Flags {
  follow?: boolean
}

export function addImage(program: Command): void {
  const image = program
    .command('image')
    .description('what sandboxes start from')
    .addHelpText('after', examples('atoll image ls', 'atoll image build tools', 'atoll create --template tools'))
  addImageBuild(image)
  image
    .command('add')
    .description('fetch an image from a registry, and print its id; without a registry in front it is one of docker.io')
    .addHelpText('after', examples('atoll image add python:3.12', 'atoll image add ghcr.io/team/tools:1 --name tools'))
    .argument('<reference>')
    .option('--name <name>', 'its name here (default: that of the repository and the tag, such as python-3.12)')
    .option('--replace', 'give a name that is taken to the new image, once it is ready')
    .action(async (reference: string, _options: AddFlags, command: Command) => {
      const { name: given, replace, json, ...flags } = command.optsWithGlobals<AddFlags>()
      const oci = withRegistry(reference)
      const name = given ?? defaultName(oci)
      const options = { client: await clientOf(flags), replace, onEvent: buildTeller() }
      const { info } = await Image.build(name, { oci }, options)
      await answer(info, json)
      if (!json) hint(`atoll create --template ${name}`)
    })
  image
    .command('import')
    .description('make an image of an OCI or docker archive ("-" for standard input), and print its id')
    .addHelpText('after', examples('docker save tools | atoll image import tools -'))
    .argument('<name>')
    .argument('<file>')
    .option('--replace', 'give a name that is taken to the new image, once it is ready')
    .action(async (name: string, file: string, _options: ReplaceFlags, command: Command) => {
      const { json, replace, ...flags } = command.optsWithGlobals<ReplaceFlags>()
      const options = { client: await clientOf(flags), replace, requestTimeoutMs: transferTimeoutMs }
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
        const { info } = await found.follow(json ? {} : { onEvent: buildTeller({ line: printLine, output: print }) })
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
      await answer((await found.follow({ onEvent: buildTeller() })).info, json)
    })
  addImageList(image)
  addImageNames(image)
  addPrune(image)
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

async function answer(info: ImageInfo, json: boolean | undefined): Promise<void> {
  if (json) await writeJson(info)
  else await writeLine(info.id)
}

function printLine(line: string): void {
  print(`${line}\n`)
}

function print(words: string): void {
  process.stdout.write(process.stdout.isTTY ? printable(words) : words)
}
