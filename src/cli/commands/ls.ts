import { Option, type Command } from 'commander'
import { Sandbox, UnexpectedAnswerError, type SandboxInfo, type SandboxStatus } from '../../../sdk/src/index.ts'
import { type ListFlags, writeList } from '../list.ts'
import { examples, pair } from '../options.ts'
import { when } from '../output.ts'
import { clientOf } from '../settings.ts'
import { durationText } from '../units.ts'

interface Options extends ListFlags {
  status?: SandboxStatus
  tag?: Record<string, string | true>
  metadata?: Record<string, string>
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
      const sandboxes = await Array.fromAsync(Sandbox.list({ client: await clientOf(flags), status, tags, metadata }))
      if (sandboxes.some((sandbox) => typeof sandbox?.sandboxID !== 'string')) {
        throw new UnexpectedAnswerError('the server answered with something else than a list of sandboxes')
      }
      await writeList(sandboxes, flags, {
        ID: (info) => info.sandboxID,
        NAME: (info) => info.name,
        STATUS: (info) => info.status,
        IMAGE: (info) => info.templateID,
        CPU: (info) => info.cpuCount,
        MEMORY: (info) => `${info.memoryMB} MB`,
        IDLE: idleText,
        EXPIRES: (info) => when(info.expiresAt),
        STARTED: (info) => when(info.startedAt),
      })
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
