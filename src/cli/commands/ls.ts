import { Option, type Command } from 'commander'
import { Sandbox, UnexpectedAnswerError, type SandboxInfo, type SandboxStatus } from '../../../sdk/src/index.ts'
import { examples, pair } from '../options.ts'
import { columns, when, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'
import { durationText } from '../units.ts'

interface Options extends Flags {
  status?: SandboxStatus
  tag?: Record<string, string | true>
  metadata?: Record<string, string>
  quiet?: boolean
}

export function addLs(program: Command): void {
  program
    .command('ls')
    .description('list sandboxes, newest first; stopped ones with --status stopped')
    .addHelpText(
      'after',
      examples('atoll ls --status running', 'atoll ls --tag env=prod --tag owner', 'atoll ls -q --metadata run=17'),
    )
    .addOption(
      new Option('--status <status>', 'only these (default: all but stopped)').choices([
        ...['creating', 'running', 'hibernated', 'stopped', 'error'],
      ]),
    )
    .option('--tag <key=value>', 'only those with this tag, or with KEY alone any value of it; may be repeated', tag)
    .option('--metadata <key=value>', 'only those created with it; may be repeated', pair)
    .option('-q, --quiet', 'print ids alone')
    .action(async (_options: Options, command: Command) => {
      const { status, tag: tags, metadata, ...flags } = command.optsWithGlobals<Options>()
      const sandboxes: SandboxInfo[] = []
      for await (const sandbox of Sandbox.list({ client: await clientOf(flags), status, tags, metadata })) {
        sandboxes.push(sandbox)
      }
      if (sandboxes.some((sandbox) => typeof sandbox?.sandboxID !== 'string')) {
        throw new UnexpectedAnswerError('the server answered with something else than a list of sandboxes')
      }
      if (flags.json) return await writeJson(sandboxes)
      if (flags.quiet) {
        for (const { sandboxID } of sandboxes) await writeLine(sandboxID)
        return
      }
      const rows = sandboxes.map((info) => [
        ...[info.sandboxID, info.name, info.status, info.templateID, info.cpuCount, `${info.memoryMB} MB`],
        ...[idleText(info), when(info.expiresAt), when(info.startedAt)],
      ])
      await writeLine(columns(['ID', 'NAME', 'STATUS', 'IMAGE', 'CPU', 'MEMORY', 'IDLE', 'EXPIRES', 'STARTED'], rows))
    })
}

/** After how long without use it hibernates, or stops. */
function idleText({ timeout, onIdle }: SandboxInfo): string {
  if (timeout === 0) return 'never'
  return onIdle === 'stop' ? `${durationText(timeout)}, stops` : durationText(timeout)
}

/** Collects `--tag KEY=VALUE`, or `--tag KEY`. */
function tag(text: string, tags: Record<string, string | true> = {}): Record<string, string | true> {
  return text.includes('=') ? { ...tags, ...pair(text) } : { ...tags, [text]: true }
}
