import type { Command } from 'commander'
import { Sandbox } from '../../../sdk/src/index.ts'
import { checkedId, portNumber } from '../options.ts'
import { note, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  domain?: string
  token?: string
  rm?: boolean
}

export function addPreview(program: Command): void {
  program
    .command('preview')
    .description('declare the preview of a port and print its URL')
    .argument('<sandbox>')
    .argument('<port>', '', portNumber)
    .option('--domain <name>', 'a host name of your own')
    .option('--token <token>', 'demand this token of visitors, or "auto"')
    .option('--rm', 'remove the domain and the token instead')
    .action(async (id: string, port: number, _options: Options, command: Command) => {
      const { json, domain, token, rm, ...flags } = command.optsWithGlobals<Options>()
      const sandbox = await Sandbox.connect(checkedId(id, 'sb-', 'sandbox'), { client: await clientOf(flags) })
      if (rm) return await sandbox.deletePreview(port)
      const preview = await sandbox.preview(port, { domain, token })
      if (json) return await writeJson(preview)
      await writeLine(sandbox.url(port))
      if (preview.previewAuthToken !== undefined) await writeLine(`token: ${preview.previewAuthToken}`)
      if (preview.verification !== undefined) {
        note(`proof of the domain: a TXT record ${preview.verification.name} with ${preview.verification.value}`)
      }
    })
}
