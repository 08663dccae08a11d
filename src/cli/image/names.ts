import { createWriteStream } from 'node:fs'
import { rename, rm } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { ReadableStream } from 'node:stream/web'
import type { Command } from 'commander'
import { Image } from '../../../sdk/src/index.ts'
import { UsageError } from '../exit-codes.ts'
import { withRegistry } from '../../lib/image-reference.ts'
import { examples } from '../options.ts'
import { note, writeJson, writeLine } from '../output.ts'
import { counted, Progress } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'

/** A large image takes its time. */
export const transferTimeoutMs = 2 * 3_600_000

interface TagFlags extends Flags {
  replace?: boolean
}

interface ExportFlags extends Flags {
  output?: string
}

/** The commands that give images names, and that take them elsewhere. */
export function addImageNames(image: Command): void {
  image
    .command('tag')
    .description('give an image another name, and print the id that it has under it; removing one leaves the other')
    .addHelpText('after', examples('atoll image tag tools tools:3', 'atoll image tag tools:3 tools --replace'))
    .argument('<image>')
    .argument('<name>', 'NAME or NAME:TAG')
    .option('--replace', 'take the name from the image that has it')
    .action(async (nameOrId: string, name: string, _options: TagFlags, command: Command) => {
      const { replace, json, ...flags } = command.optsWithGlobals<TagFlags>()
      const found = await Image.get(nameOrId, { client: await clientOf(flags) })
      const { info } = await found.tag(name, { replace })
      if (json) await writeJson(info)
      else await writeLine(info.id)
    })
  image
    .command('export')
    .description('write an image as an OCI archive, which skopeo and podman read')
    .addHelpText('after', examples('atoll image export tools -o tools.tar', 'atoll image export tools | podman load'))
    .argument('<image>')
    .option('-o, --output <file>', 'where to; "-" for standard output, which is the default unless it is a terminal')
    .action(async (nameOrId: string, _options: ExportFlags, command: Command) => {
      const { output = '-', ...flags } = command.optsWithGlobals<ExportFlags>()
      if (output === '-' && process.stdout.isTTY)
        throw new UsageError('standard output is a terminal: name a file with --output')
      const found = await Image.get(nameOrId, { client: await clientOf(flags) })
      note('packing all files of the image')
      const archive = await found.archive({ requestTimeoutMs: transferTimeoutMs })
      const progress = new Progress(nameOrId)
      const chunks = counted(Readable.fromWeb(archive as ReadableStream), (bytes) => progress.update(bytes))
      try {
        if (output === '-') await pipeline(chunks, process.stdout)
        else await writeWhole(output, chunks)
      } finally {
        progress.end()
      }
    })
  image
    .command('push')
    .description('send an image to a registry, and print the digest that it has there')
    .addHelpText('after', examples('atoll image push tools ghcr.io/team/tools:3'))
    .argument('<image>')
    .argument('<reference>', 'without a registry in front it is one of docker.io')
    .action(async (nameOrId: string, reference: string, _options: Flags, command: Command) => {
      const { json, ...flags } = command.optsWithGlobals<Flags>()
      const found = await Image.get(nameOrId, { client: await clientOf(flags) })
      const target = withRegistry(reference)
      note(`packing all files of the image, then pushing to ${target}`)
      const pushed = await found.push(target, { requestTimeoutMs: transferTimeoutMs })
      if (json) await writeJson(pushed)
      else await writeLine(pushed.digest)
    })
}

/** Under another name first, so that a file of this name is a whole archive. */
async function writeWhole(file: string, chunks: AsyncIterable<Uint8Array>): Promise<void> {
  const draft = `${file}.part`
  try {
    await pipeline(chunks, createWriteStream(draft, { flags: 'wx' }))
    await rename(draft, file)
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
}
