import type { Command } from 'commander'
import { Sandbox } from '../../../sdk/src/index.ts'
import { each } from '../each.ts'
import { checkedId, examples, portNumber, portNumbers } from '../options.ts'
import { columns, note, when, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface SetOptions extends Flags {
  domain?: string
  token?: string
  rm?: boolean
}

interface ListOptions extends Flags {
  quiet?: boolean
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
    .action(async (id: string, _options: ListOptions, command: Command) => {
      const flags = command.optsWithGlobals<ListOptions>()
      const previews = await (await connect(id, flags)).previews()
      if (flags.json) return await writeJson(previews)
      if (flags.quiet) {
        for (const info of previews) await writeLine(String(info.port))
        return
      }
      const rows = previews.map((info) => [
        ...[info.port, info.hostname, info.customHostname, info.authConfig.scheme === undefined ? 'no' : 'yes'],
        ...[info.sslStatus, when(info.createdAt)],
      ])
      await writeLine(columns(['PORT', 'HOST', 'DOMAIN', 'TOKEN', 'CERTIFICATE', 'DECLARED'], rows))
    })
  preview
    .command('rm')
    .description('remove the domain and the token of previews')
    .addHelpText('after', examples('atoll preview rm web 3000'))
    .argument('<sandbox>')
    .argument('<port...>', '', portNumbers)
    .action(async (id: string, ports: number[], _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const sandbox = await connect(id, flags)
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
      const sandbox = await connect(id, flags)
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

async function connect(id: string, flags: Flags): Promise<Sandbox> {
  return await Sandbox.connect(checkedId(id, 'sb-', 'sandbox'), { client: await clientOf(flags) })
}
