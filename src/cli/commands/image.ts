import { open, readFile } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { Command } from 'commander'
import { type BuildEvent, Image, type ImageInfo, type ImageManifest } from '../../../sdk/src/index.ts'
import { UsageError } from '../exit-codes.ts'
import { columns, hint, note, printable, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

/** A large archive takes its time. */
const importTimeoutMs = 2 * 3_600_000

interface BuildFlags extends Flags {
  background?: boolean
}

export function addImage(program: Command): void {
  const image = program.command('image').description('images of your own')
  image
    .command('build')
    .description('build an image from the steps in a JSON file ("-" for standard input), and print its id')
    .argument('<name>')
    .argument('<file>')
    .option('--background', 'do not wait for the end')
    .action(async (name: string, file: string, _options: BuildFlags, command: Command) => {
      const { background, json, ...flags } = command.optsWithGlobals<BuildFlags>()
      const client = await clientOf(flags)
      const manifest = await manifestIn(file)
      const { info } = background
        ? await Image.begin(name, manifest, { client })
        : await Image.build(name, manifest, { client, onEvent: tell })
      await answer(info, json)
      if (!json) hint(`atoll create --template ${name}`)
    })
  image
    .command('import')
    .description('make an image of an OCI or docker archive ("-" for standard input), and print its id')
    .argument('<name>')
    .argument('<file>')
    .action(async (name: string, file: string, _options: Flags, command: Command) => {
      const { json, ...flags } = command.optsWithGlobals<Flags>()
      const archive = file === '-' ? process.stdin : (await open(file)).createReadStream()
      const body = Readable.toWeb(archive) as ReadableStream<Uint8Array>
      const options = { client: await clientOf(flags), requestTimeoutMs: importTimeoutMs }
      await answer((await Image.fromArchive(name, body, options)).info, json)
      if (!json) hint(`atoll create --template ${name}`)
    })
  image
    .command('follow')
    .description('print what a build tells until its end')
    .argument('<image>')
    .action(async (nameOrId: string, _options: Flags, command: Command) => {
      const { json, ...flags } = command.optsWithGlobals<Flags>()
      const found = await Image.get(nameOrId, { client: await clientOf(flags) })
      await answer((await found.follow({ onEvent: tell })).info, json)
    })
  image
    .command('ls')
    .description('list images with a name')
    .action(async (_options: Flags, command: Command) => {
      const { json, ...flags } = command.optsWithGlobals<Flags>()
      const all = (await Image.list({ client: await clientOf(flags) })).map(({ info }) => info)
      if (json) return await writeJson(all)
      const rows = all.map((info) => [info.name, info.status, info.id, info.createdAt, info.lastUsedAt])
      await writeLine(columns(['NAME', 'STATUS', 'ID', 'CREATED', 'USED'], rows))
    })
  image
    .command('get')
    .description('print what is known of an image')
    .argument('<image>')
    .action(async (nameOrId: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const { info } = await Image.get(nameOrId, { client: await clientOf(flags) })
      if (flags.json) return await writeJson(info)
      await writeLine(JSON.stringify(info, null, 2))
    })
  image
    .command('rm')
    .description('delete images; sandboxes from them run on')
    .argument('<image...>')
    .action(async (names: string[], _options: Flags, command: Command) => {
      const client = await clientOf(command.optsWithGlobals<Flags>())
      for (const name of names) await (await Image.get(name, { client })).delete()
    })
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

/** Standard output is for the id. */
function tell(event: BuildEvent): void {
  if (event.event === 'build_log') note(event.message)
  else process.stderr.write(printable(event.data))
}
