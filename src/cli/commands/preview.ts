import type { Command } from 'commander'
import { each } from '../each.ts'
import { type ListFlags, writeList } from '../list.ts'
import { examples, portNumber, portNumbers } from '../options.ts'
import { note, when, writeJson, writeLine } from '../output.ts'
import { sandboxOf, type Flags } from '../settings.ts'

interface SetOptions extends Flags {
  domain?: string
  token?: string
  rm?: boolean
}

export function addPreview(program: Command): void {
  const preview = program
    .command('preview')
    .description('previews with a domain or a token of their own; "atoll preview SANDBOX PORT" declares one')
    .addHelpText('after', examples('atoll preview web 3000 --token auto', 'atoll preview ls web'))
  addSet(preview)
  preview
    .command('ls')
    .description('list the previews of a sandbox that were declared; "atoll ports" lists what listens')
    .addHelpText('after', examples('atoll preview ls web'))
    .argument('<sandbox>')
    .option('-q, --quiet', 'print ports alone')
    .action(async (id: string, _options: ListFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      const previews = await (await sandboxOf(id, flags)).previews()
      await writeList(previews, flags, {
        PORT: (info) => info.port,
        HOST: (info) => info.hostname,
        DOMAIN: (info) => info.customHostname,
        TOKEN: (info) => (info.authConfig.scheme === undefined ? 'no' : 'yes'),
        CERTIFICATE: (info) => info.sslStatus,
        DECLARED: (info) => when(info.createdAt),
      })
    })
  preview
    .command('rm')
    .description('remove the domain and the token of previews')
    .addHelpText('after', examples('atoll preview rm web 3000'))
    .argument('<sandbox>')
    .argument('<port...>', '', portNumbers)
    .action(async (id: string, ports: number[], _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const sandbox = await sandboxOf(id, flags)
      await each(ports.map(String), flags, (one) => sandbox.deletePreview(Number(one)))
    })
}

function addSet(preview: Command): void {
  preview
    .command('set', { isDefault: true })
    .description('declare the preview of a port and print its URL')
    .addHelpText('after', examples('atoll preview set web 3000 --domain app.example.com'))
    .argument('<sandbox>')
    .argument('<port>', '', portNumber)
    .option('--domain <name>', 'a host name of your own')
    .option('--token <token>', 'demand this token of visitors, or "auto" (default: none)')
    .option('--rm', 'remove the domain and the token instead')
    .action(async (id: string, wanted: number, _options: SetOptions, command: Command) => {
      const { json, domain, token, rm, ...flags } = command.optsWithGlobals<SetOptions>()
      const sandbox = await sandboxOf(id, flags)
      if (rm) return await sandbox.deletePreview(wanted)
      const made = await sandbox.preview(wanted, { domain, token })
      if (json) return await writeJson(made)
      await writeLine(sandbox.url(wanted))
      if (made.previewAuthToken !== undefined) await writeLine(`token: ${made.previewAuthToken}`)
      if (made.verification !== undefined) {
        note(`proof of the domain: a TXT record ${made.verification.name} with ${made.verification.value}`)
      }
    })
}
