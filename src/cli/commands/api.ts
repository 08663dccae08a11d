import { readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import type { Command } from 'commander'
import { UsageError } from '../exit-codes.ts'
import { examples } from '../options.ts'
import { write } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  data?: string
}

export function addApi(program: Command): void {
  program
    .command('api')
    .description('send a request with your key and print the answer as it is')
    .addHelpText('after', examples(`atoll api POST /api/sandboxes --data '{"timeout": 600}'`))
    .argument('<method>', 'GET, POST, PUT, DELETE …')
    .argument('<path>', 'such as /api/sandboxes')
    .option('--data <json>', 'the body; @FILE reads a file, - standard input')
    .action(async (method: string, path: string, _options: Options, command: Command) => {
      const { data, ...flags } = command.optsWithGlobals<Options>()
      if (!path.startsWith('/')) throw new UsageError(`${JSON.stringify(path)} is no path: it must begin with /`)
      if (!/^[A-Za-z]+$/.test(method)) throw new UsageError(`${JSON.stringify(method)} is no method of HTTP`)
      const client = await clientOf(flags)
      const body = data === undefined ? undefined : await bodyOf(data)
      const headers: Record<string, string> = body === undefined ? {} : { 'Content-Type': 'application/json' }
      const call = { headers, repeat: 'refused', ...(body === undefined ? {} : { body }) } as const
      const answer = await client.open(method.toUpperCase(), path, call)
      if (answer.body !== null) for await (const chunk of answer.body) await write(chunk as Uint8Array)
    })
}

async function bodyOf(data: string): Promise<string | Uint8Array<ArrayBuffer>> {
  if (data === '-') return await text(process.stdin)
  return data.startsWith('@') ? new Uint8Array(await readFile(data.slice(1))) : data
}
