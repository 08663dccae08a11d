import { type Command, Option } from 'commander'
import type { StartResult, VolumeMount } from '../../../sdk/src/index.ts'
import { pair, volumeMount, wholeNumber } from '../options.ts'
import { hint, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  template?: string
  timeout?: number
  onIdle?: string
  maxAge?: number
  cpu?: number
  memory?: number
  disk?: number
  user?: string
  env?: Record<string, string>
  metadata?: Record<string, string>
  previewToken?: string
  volume?: VolumeMount[]
}

export function addCreate(program: Command): void {
  program
    .command('create')
    .description('start a sandbox and print its id')
    .option('--template <name>', 'the image')
    .option('--timeout <seconds>', "idle timeout, 0 for none (default: 300, or the server's)", wholeNumber)
    .addOption(new Option('--on-idle <action>', 'what happens then').choices(['hibernate', 'stop']))
    .option('--max-age <seconds>', 'delete it this long after its creation, whatever it does; 0 for never', wholeNumber)
    .option('--cpu <count>', 'CPUs', wholeNumber)
    .option('--memory <MB>', 'memory', wholeNumber)
    .option('--disk <MB>', 'disk', wholeNumber)
    .option('--user <name>', 'who runs its commands, by name or id')
    .option('-e, --env <name=value>', 'a variable of its processes; may be repeated', pair)
    .option('--metadata <name=value>', 'a fact to find it by; may be repeated', pair)
    .option('--preview-token <token>', 'demand this token of visitors of its previews, or "auto"')
    .option('--volume <name:/path[:ro]>', 'a volume to mount; may be repeated', volumeMount)
    .action(async (_options: Options, command: Command) => {
      const flags = command.optsWithGlobals<Options>()
      const {
        template: templateID,
        timeout,
        onIdle,
        maxAge: maxAgeSeconds,
        cpu: cpuCount,
        memory: memoryMB,
        disk: diskMB,
        user,
        env: envs,
        metadata,
        volume: volumes,
      } = flags
      const client = await clientOf(flags)
      const previewAuth = flags.previewToken === undefined ? undefined : { scheme: 'bearer', token: flags.previewToken }
      const lifetimes = { timeout, onIdle, maxAgeSeconds }
      const json = { templateID, ...lifetimes, cpuCount, memoryMB, diskMB, user, envs, metadata, volumes, previewAuth }
      const started = await client.json<StartResult>('POST', '/api/sandboxes', { json, creates: true })
      if (flags.json) return await writeJson(started)
      await writeLine(started.sandboxID)
      if (started.previewAuthToken !== undefined) await writeLine(`preview token: ${started.previewAuthToken}`)
      hint(`atoll shell ${started.sandboxID}`)
    })
}
