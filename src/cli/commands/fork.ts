import { type Command, Option } from 'commander'
import { makeError, type ErrorCode, type StartResult, type VolumeMount } from '../../../sdk/src/index.ts'
import { type EgressFlags, egressOf, withEgressFlags } from '../egress/flags.ts'
import { checkedCheckpoint, examples, pair, volumeMount, wholeNumber } from '../options.ts'
import { hint, writeJson, writeLine } from '../output.ts'
import { waiting } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags, EgressFlags {
  name?: string
  count?: number
  timeout?: number
  onIdle?: string
  maxAge?: number
  memory?: number
  user?: string
  env?: Record<string, string>
  volume?: VolumeMount[]
}

interface StartFailure {
  error: string
  code: ErrorCode
}

interface StartResults {
  sandboxes: (StartResult | StartFailure)[]
}

export function addFork(program: Command): void {
  const fork = program
    .command('fork')
    .description('start sandboxes that go on from a checkpoint, and print their ids')
    .addHelpText('after', examples('atoll fork web/prepared --count 3'))
    .argument('<checkpoint>')
    .option('--name <name>', 'of the new one, without --count')
    .option('--count <count>', 'how many', wholeNumber)
    .option('--timeout <seconds>', 'idle timeout of each, 0 for none', wholeNumber)
    .addOption(new Option('--on-idle <action>', 'what happens then').choices(['hibernate', 'stop']))
    .option('--max-age <seconds>', 'delete each this long after its creation, 0 for never', wholeNumber)
    .option('--memory <MB>', 'memory of each', wholeNumber)
    .option('--user <name>', 'who runs their commands, by name or id')
    .option('-e, --env <name=value>', 'a variable of its processes; may be repeated', pair)
    .option('--volume <name:/path[:ro]>', 'a volume in place of those of the checkpoint; may be repeated', volumeMount)
    .action(async (id: string, _options: Options, command: Command) => {
      const {
        name,
        count,
        timeout,
        onIdle,
        maxAge: maxAgeSeconds,
        memory: memoryMB,
        user,
        env: envs,
        volume: volumes,
        ...flags
      } = command.optsWithGlobals<Options>()
      const client = await clientOf(flags)
      const path = `/api/sandboxes/from-checkpoint/${encodeURIComponent(checkedCheckpoint(id))}`
      const json = { name, count, timeout, onIdle, maxAgeSeconds, memoryMB, user, envs, volumes, ...egressOf(flags) }
      const answer = await waiting(
        'the sandboxes start',
        client.json<StartResult | StartResults>('POST', path, { json, creates: true }),
      )
      const all = 'sandboxes' in answer ? answer.sandboxes : [answer]
      if (flags.json) await writeJson(answer)
      for (const one of all) if (!flags.json && 'sandboxID' in one) await writeLine(one.sandboxID)
      const failed = all.find((one) => 'error' in one)
      if (failed !== undefined) {
        const started = all.filter((one) => 'sandboxID' in one).length
        throw makeError(failed.code, `${started} of ${all.length} sandboxes started: ${failed.error}`)
      }
      if (all[0] !== undefined && 'sandboxID' in all[0] && !flags.json) hint(`atoll shell ${all[0].sandboxID}`)
    })
  withEgressFlags(fork)
}
