import { text } from 'node:stream/consumers'
import type { Command } from 'commander'
import { each } from '../each.ts'
import { UsageError } from '../exit-codes.ts'
import { type ListFlags, writeList } from '../list.ts'
import { examples } from '../options.ts'
import { note, when, writeJson } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface LoginFlags extends Flags {
  username: string
  passwordStdin?: boolean
}

export function addRegistry(program: Command): void {
  const registry = program
    .command('registry')
    .description("the organisation's credentials at registries of images")
    .addHelpText(
      'after',
      examples('atoll registry login ghcr.io -u robot --password-stdin < token', 'atoll registry ls'),
    )
  registry
    .command('login')
    .description(
      'store credentials on the server, for all that this organisation fetches from the registry and pushes to it',
    )
    .addHelpText('after', examples('atoll registry login ghcr.io -u robot --password-stdin < token'))
    .argument('<host>')
    .requiredOption('-u, --username <name>', 'who logs in')
    .option('--password-stdin', 'read the password from standard input, as it must be: an argument is seen by others')
    .action(async (host: string, _options: LoginFlags, command: Command) => {
      const { username, passwordStdin, json, ...flags } = command.optsWithGlobals<LoginFlags>()
      if (!passwordStdin) throw new UsageError('missing --password-stdin: the password comes from standard input')
      const password = (await text(process.stdin)).replace(/\r?\n$/, '')
      if (password === '') throw new UsageError('standard input has no password')
      const stored = await (await clientOf(flags)).registries.login(host, { username, password })
      if (json) await writeJson(stored)
      else note(`the credentials of ${stored.username} at ${stored.host} are stored`)
    })
  registry
    .command('ls')
    .description('list the registries with credentials')
    .addHelpText('after', examples('atoll registry ls'))
    .option('-q, --quiet', 'print hosts alone')
    .action(async (_options: ListFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      await writeList(await (await clientOf(flags)).registries.list(), flags, {
        HOST: (one) => one.host,
        USER: (one) => one.username,
        STORED: (one) => when(one.updatedAt),
      })
    })
  registry
    .command('logout')
    .description('remove credentials from the server; images that were fetched stay')
    .addHelpText('after', examples('atoll registry logout ghcr.io'))
    .argument('<host...>')
    .action(async (hosts: string[], _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const { registries } = await clientOf(flags)
      await each(hosts, flags, (host) => registries.logout(host))
    })
}
