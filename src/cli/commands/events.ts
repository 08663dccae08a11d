import { InvalidArgumentError, type Command } from 'commander'
import type { EventInfo } from '../../../sdk/src/index.ts'
import { examples, wholeNumber } from '../options.ts'
import { printable, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  follow?: boolean
  after?: number | 'newest'
  type?: string[]
  sandbox?: string
  session?: string
  tag?: string
}

export function addEvents(program: Command): void {
  program
    .command('events')
    .description('print what has happened to sandboxes, checkpoints, images, volumes, sessions and keys')
    .addHelpText('after', examples("atoll events --follow --type 'sandbox.*'"))
    .option('-f, --follow', 'go on with what happens')
    .option('--after <number>', 'begin after this event; "newest": with what comes', position)
    .option('--type <type...>', 'only these types; "sandbox.*" is all that begin so')
    .option('--sandbox <id>', 'only those about this sandbox')
    .option('--session <id>', 'only those about this session')
    .option('--tag <tag>', 'only those whose sandbox had this tag then: KEY=VALUE or KEY')
    .action(async (_options: Options, command: Command) => {
      const { follow = false, after, type, sandbox, session, tag, ...flags } = command.optsWithGlobals<Options>()
      const client = await clientOf(flags)
      for await (const event of client.events({ follow, after, type, sandbox, session, tag })) {
        if (flags.json) await writeJson(event)
        else await writeLine(lineOf(event))
      }
    })
}

function position(text: string): number | 'newest' {
  if (text === 'newest') return text
  try {
    return wholeNumber(text)
  } catch {
    throw new InvalidArgumentError('It must be a whole number or "newest".')
  }
}

/** One line: lines of a stream cannot be aligned. */
function lineOf({ number, ts, type, subject, sandboxId, actor, cause, data }: EventInfo): string {
  const of = sandboxId === undefined || sandboxId === subject ? subject : `${subject} of ${sandboxId}`
  const by = [actor.type, ...(actor.id === undefined ? [] : [actor.id])].join(' ')
  const facts = Object.keys(data).length === 0 ? '' : ` ${JSON.stringify(data)}`
  return printable(`${number} ${ts} ${type} ${of} (${by}, ${cause})${facts}`)
}
