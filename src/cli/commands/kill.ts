import { constants } from 'node:os'
import { InvalidArgumentError, type Command } from 'commander'
import type { Sandbox } from '../../../sdk/src/index.ts'
import { UsageError } from '../exit-codes.ts'
import { examples } from '../options.ts'
import { sandboxOf, type Flags } from '../settings.ts'

/** SIGTERM, as that of `kill`. */
const usualSignal = 15
/** What the kernel of the sandbox has. */
const signalMax = 64

interface Options extends Flags {
  signal?: number
}

export function addKill(program: Command): void {
  program
    .command('kill')
    .description('send a signal to processes of a sandbox; "atoll rm" ends the sandbox itself')
    .addHelpText(
      'after',
      examples('atoll kill sb-0123456789abcdef 42', 'atoll kill -s KILL sb-0123456789abcdef es-0123456789abcdef'),
    )
    .argument('<sandbox>')
    .argument('[process...]', 'numbers of "atoll ps", ids of "atoll exec -d" or of terminals')
    .option('-s, --signal <signal>', 'its name or number (default: TERM)', signalNumber)
    .action(async (id: string, names: string[], _options: Options, command: Command) => {
      const { signal, ...flags } = command.optsWithGlobals<Options>()
      if (names.length === 0) {
        throw new UsageError(`no process: "atoll ps ${id}" lists them, "atoll rm ${id}" ends the sandbox`)
      }
      const kills = names.map((name) => killOf(name, signal))
      const sandbox = await sandboxOf(id, flags)
      // One that has ended does not keep the others from the signal.
      const ends = await Promise.allSettled(kills.map((kill) => kill(sandbox)))
      for (const end of ends) if (end.status === 'rejected') throw end.reason
    })
}

/** How a process of this name is sent a signal. Throws for a name of another shape. */
function killOf(name: string, signal = usualSignal): (sandbox: Sandbox) => Promise<void> {
  if (/^[1-9]\d{0,9}$/.test(name)) return (sandbox) => sandbox.signal(Number(name), signal)
  if (/^es-[a-z0-9]+$/.test(name)) return (sandbox) => sandbox.attach(name).kill(signal)
  if (!/^ps-[a-z0-9]+$/.test(name)) {
    throw new UsageError(
      `${JSON.stringify(name)} is no process: it must be a number, or an id that begins with es- or ps-`,
    )
  }
  if (signal !== usualSignal) throw new UsageError(`${name} is a terminal, which takes no signal: it is closed`)
  return (sandbox) => sandbox.attachTerminal(name).kill()
}

function signalNumber(text: string): number {
  const name = `SIG${text.toUpperCase().replace(/^SIG/, '')}`
  const known = Object.entries(constants.signals).find(([one]) => one === name)?.[1]
  const number = known ?? (/^\d{1,2}$/.test(text) ? Number(text) : 0)
  if (number < 1 || number > signalMax) throw new InvalidArgumentError('It must be a signal, such as KILL or 9.')
  return number
}
