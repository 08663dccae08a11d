import type { Command } from 'commander'
import { UsageError } from '../exit-codes.ts'
import { examples, list, pair, sandboxPath } from '../options.ts'
import { printable, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  rm?: string[]
}

interface Tags {
  tags: Record<string, string>
}

export function addTag(program: Command): void {
  program
    .command('tag')
    .description('print the tags of a sandbox, or set some and leave the others; "atoll ls --tag" finds by them')
    .addHelpText('after', examples('atoll tag web', 'atoll tag web env=prod owner=ada --rm draft'))
    .argument('<sandbox>')
    .argument('[key=value...]')
    .option('--rm <key>', 'take this tag away; may be repeated', list)
    .action(async (id: string, given: string[], _options: Options, command: Command) => {
      const flags = command.optsWithGlobals<Options>()
      const path = `${sandboxPath(id)}/tags`
      const wrong = given.find((text) => text.indexOf('=') < 1)
      if (wrong !== undefined) throw new UsageError(`${JSON.stringify(wrong)} is no tag: it must be NAME=VALUE`)
      const set = given.reduce<Record<string, string>>((tags, text) => pair(text, tags), {})
      const removed = flags.rm ?? []
      const both = removed.find((key) => Object.hasOwn(set, key))
      if (both !== undefined) throw new UsageError(`the tag ${JSON.stringify(both)} is set and taken away`)
      const client = await clientOf(flags)
      const { tags: before } = await client.json<Tags>('GET', path)
      const isRead = given.length === 0 && removed.length === 0
      const wanted = { ...before, ...set }
      for (const key of removed) delete wanted[key]
      const { tags } = isRead ? { tags: before } : await client.json<Tags>('PUT', path, { json: wanted })
      if (flags.json) return await writeJson(tags)
      for (const [key, value] of Object.entries(tags)) await writeLine(printable(`${key}=${value}`))
    })
}
