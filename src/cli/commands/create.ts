import { type Command, Option } from 'commander'
import { buildEnd } from '../../../sdk/src/image.ts'
import type { Atoll, StartResult, VolumeMount } from '../../../sdk/src/index.ts'
import { baseImage, buildTeller } from '../build.ts'
import { type EgressFlags, egressOf, withEgressFlags } from '../egress/flags.ts'
import { examples, pair, volumeMount, wholeNumber } from '../options.ts'
import { hint, note, writeJson, writeLine } from '../output.ts'
import { waiting } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags, EgressFlags {
  name?: string
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
  const create = program
    .command('create')
    .description('start a sandbox and print its id')
    .addHelpText(
      'after',
      examples('atoll create --name web --timeout 600 -e MODE=test', 'sb=$(atoll create --template python)'),
    )
    .option('--name <name>', 'serves wherever its id does, while it lives')
    .option('--template <image>', 'the image, see "atoll image ls" (default: base)')
    .option('--timeout <seconds>', "idle timeout, 0 for none (default: 300, or the server's)", wholeNumber)
    .addOption(new Option('--on-idle <action>', 'what happens then').choices(['hibernate', 'stop']))
    .option('--max-age <seconds>', 'delete it this long after its creation, whatever it does; 0 for never', wholeNumber)
    .option('--cpu <count>', 'CPUs (default: 1)', wholeNumber)
    .option('--memory <MB>', 'memory (default: 1024, or that of the image)', wholeNumber)
    .option('--disk <MB>', 'disk (default: 10240)', wholeNumber)
    .option('--user <name>', 'who runs its commands, by name or id (default: root)')
    .option('-e, --env <name=value>', 'a variable of its processes; may be repeated', pair)
    .option('--metadata <name=value>', 'a fact to find it by; may be repeated', pair)
    .option('--preview-token <token>', 'demand this token of visitors of its previews, or "auto"')
    .option('--volume <name:/path[:ro]>', 'a volume to mount; may be repeated', volumeMount)
    .action(async (_options: Options, command: Command) => {
      const flags = command.optsWithGlobals<Options>()
      const { name, timeout, onIdle, maxAge: maxAgeSeconds } = flags
      const { cpu: cpuCount, memory: memoryMB, disk: diskMB, user, env: envs, metadata } = flags
      const previewAuth = flags.previewToken === undefined ? undefined : { scheme: 'bearer', token: flags.previewToken }
      const json = {
        ...{ name, timeout, onIdle, maxAgeSeconds, cpuCount, memoryMB, diskMB, user, envs, metadata },
        ...{ volumes: flags.volume, previewAuth, ...egressOf(flags) },
      }
      const started = await waiting('the sandbox starts', start(await clientOf(flags), json, flags.template))
      if (flags.json) return await writeJson(started)
      await writeLine(started.sandboxID)
      if (started.previewAuthToken !== undefined) note(`preview token: ${started.previewAuthToken}`)
      hint(`atoll shell ${started.name ?? started.sandboxID}`)
    })
  withEgressFlags(create)
}

/** From an image with a name the answer is events: who names one of the server's first waits for its build. */
async function start(client: Atoll, json: object, template: string | undefined): Promise<StartResult> {
  if (template === undefined || template === baseImage) {
    return await client.json<StartResult>('POST', '/api/sandboxes', { json, creates: true })
  }
  const call = { json: { ...json, snapshot: template }, headers: { Accept: 'text/event-stream' } }
  return await buildEnd<StartResult>(await client.open('POST', '/api/sandboxes', call), buildTeller())
}
