import type { Command } from 'commander'
import { type Atoll, UnexpectedAnswerError } from '../../../sdk/src/index.ts'
import { configPath, readConfig, writeConfig } from '../config-file.ts'
import { UsageError } from '../exit-codes.ts'
import { hiddenInput } from '../hidden-input.ts'
import { examples } from '../options.ts'
import { note } from '../output.ts'
import { checkedKey, checkedUrl, clientOf, defaultUrl, type Flags } from '../settings.ts'

interface Options extends Flags {
  name: string
}

export function addLogin(program: Command): void {
  program
    .command('login')
    .description('check an API key and save it with its server; asks for it on a terminal, else reads standard input')
    .addHelpText('after', examples('atoll login --url https://api.example.com --name work'))
    .option('--name <name>', 'how the server is called here', 'default')
    .action(async (_options: Options, command: Command) => {
      const flags = command.optsWithGlobals<Options>()
      const url = checkedUrl(flags.url ?? (process.env['ATOLL_URL'] || defaultUrl))
      // Before the question, so that a broken file wastes no answer.
      const config = await readConfig()
      const apiKey = checkedKey(flags.key ?? (await askKey(url)))
      if (apiKey === undefined) throw new UsageError('there is no API key')
      await check(await clientOf({ ...flags, url, key: apiKey }))
      const contexts = { ...config.contexts, [flags.name]: { url, apiKey } }
      await writeConfig({ current: flags.name, contexts })
      note(`${flags.name} is saved in ${configPath()} and is now the current context`)
    })
}

async function check(client: Atoll): Promise<void> {
  const sandboxes = await client.json<unknown>('GET', '/api/sandboxes', { query: { limit: 1 } })
  if (!Array.isArray(sandboxes)) throw new UnexpectedAnswerError(`${client.url} is no Atoll server`)
}

async function askKey(url: string): Promise<string> {
  const key = (await hiddenInput(`API key of ${url}: `)).trim()
  if (key === '' && process.stdin.isTTY) throw new UsageError('no API key was given')
  return key
}
