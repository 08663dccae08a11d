import type { Command } from 'commander'
import { Sandbox, type Terminal } from '../../../sdk/src/index.ts'
import { UsageError } from '../exit-codes.ts'
import { onExit } from '../interrupt.ts'
import { checkedId, pair } from '../options.ts'
import { note } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'
import { TerminalModes } from '../terminal-modes.ts'
import { ownFailure } from './exec.ts'

/** Ctrl-] */
const detachByte = 0x1d
const exitCodeMax = 255

interface Options extends Flags {
  attach?: string
  cwd?: string
  env?: Record<string, string>
  user?: string
  shell?: string
}

export function addShell(program: Command): void {
  program
    .command('shell')
    .description('open a terminal in a sandbox; Ctrl-] leaves it running')
    .argument('<sandbox>')
    .option('--attach <id>', 'a terminal that was left running')
    .option('--cwd <folder>', 'where it begins')
    .option('-e, --env <name=value>', 'a variable; may be repeated', pair)
    .option('--user <name>', 'whose shell')
    .option('--shell <program>', 'which shell')
    .exitOverride(ownFailure)
    .action(async (id: string, _options: Options, command: Command) => {
      process.exitCode = await shell(id, command.optsWithGlobals<Options>()).catch(ownFailure)
    })
}

async function shell(id: string, flags: Options): Promise<number> {
  const { stdin, stdout } = process
  if (!stdin.isTTY || !stdout.isTTY) {
    throw new UsageError(`shell needs a terminal; "atoll exec ${id} -- COMMAND" runs without one`)
  }
  const sandbox = await Sandbox.connect(checkedId(id, 'sb-', 'sandbox'), { client: await clientOf(flags) })
  const envs = { TERM: process.env['TERM'] ?? 'xterm', ...flags.env }
  const terminal =
    flags.attach === undefined
      ? await sandbox.terminal({ ...sizeOf(stdout), cwd: flags.cwd, user: flags.user, shell: flags.shell, envs })
      : sandbox.attachTerminal(checkedId(flags.attach, 'ps-', 'terminal'))
  if (flags.attach !== undefined) await terminal.resize(sizeOf(stdout))
  return await relay(id, terminal)
}

async function relay(id: string, terminal: Terminal): Promise<number> {
  const { stdin, stdout } = process
  const modes = new TerminalModes()
  let isDetached = false
  const restored = onExit(() => {
    stdin.setRawMode(false)
    stdout.write(modes.reset())
  })
  const resize = () => void terminal.resize(sizeOf(stdout)).catch(() => undefined)
  const type = (bytes: Buffer) => {
    const end = bytes.indexOf(detachByte)
    const typed = end === -1 ? bytes : bytes.subarray(0, end)
    // A failure ends the reader below too.
    void terminal.write(typed).catch(() => undefined)
    if (end === -1) return
    isDetached = true
    terminal.detach()
  }
  stdin.setRawMode(true)
  stdin.on('data', type)
  stdout.on('resize', resize)
  try {
    for await (const bytes of terminal) {
      modes.see(bytes)
      stdout.write(bytes)
      if (isDetached) break
    }
    return isDetached ? 0 : Math.min((await terminal.exited) ?? 0, exitCodeMax)
  } catch (error) {
    if (!isDetached) throw error
    return 0
  } finally {
    stdin.off('data', type)
    stdout.off('resize', resize)
    stdin.setRawMode(false)
    stdin.pause()
    stdout.write(modes.reset())
    restored()
    if (isDetached) note(`\ndetached; atoll shell ${id} --attach ${terminal.id}`)
  }
}

function sizeOf({ columns, rows }: NodeJS.WriteStream): { cols: number; rows: number } {
  // A terminal without a size says 0.
  return { cols: columns || 80, rows: rows || 24 }
}
