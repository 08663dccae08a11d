import { spawnSync } from 'node:child_process'
import type { Command } from 'commander'
import type { ProcessInfo, Sandbox, Terminal } from '../../../sdk/src/index.ts'
import { ownFailure, UsageError } from '../exit-codes.ts'
import { onExit } from '../interrupt.ts'
import { writeList } from '../list.ts'
import { checkedId, commandOf, examples, pair, takesCommand } from '../options.ts'
import { note, when } from '../output.ts'
import { sandboxOf, type Flags } from '../settings.ts'
import { TerminalModes } from '../terminal-modes.ts'

/** Ctrl-] */
const detachByte = 0x1d
const exitCodeMax = 255

/** What the terminal runs: the command, else bash, else sh. */
const startCommand = '[ $# -gt 0 ] || set -- "$(command -v bash || echo sh)"; exec "$@"'
/** The folder of an image that names one stays. */
const startInWorkspace = `[ "$PWD" != / ] || [ ! -d /workspace ] || cd /workspace; ${startCommand}`

interface Options extends Flags {
  list?: boolean
  attach?: string
  cwd?: string
  env?: Record<string, string>
  user?: string
  shell?: string
}

export function addShell(program: Command): void {
  takesCommand(program.command('shell'))
    .description('open a terminal in a sandbox, in /workspace; Ctrl-] leaves it running')
    .addHelpText(
      'after',
      examples(
        'atoll shell sb-0123456789abcdef',
        'atoll shell sb-0123456789abcdef htop -d 5',
        'atoll shell sb-0123456789abcdef --list',
      ),
    )
    .argument('<sandbox>')
    .argument('[command...]', 'what it runs in place of a shell; one alone with a blank runs under sh -c')
    .option('--list', 'list the terminals that run')
    .option('--attach <id>', 'a terminal that was left running')
    .option('--cwd <folder>', 'where it begins')
    .option('-e, --env <name=value>', 'a variable; may be repeated', pair)
    .option('--user <name>', 'whose shell')
    .option('--shell <program>', 'which shell; default bash, or sh where there is none')
    .exitOverride(ownFailure)
    .action(async (id: string, argv: string[], _options: Options, command: Command) => {
      process.exitCode = await shell(id, argv, command.optsWithGlobals<Options>()).catch(ownFailure)
    })
}

async function shell(id: string, argv: readonly string[], flags: Options): Promise<number> {
  if (flags.list) return await list(id, flags)
  const { stdin, stdout } = process
  if (!stdin.isTTY || !stdout.isTTY) {
    throw new UsageError(`shell needs a terminal; "atoll exec ${id} -- COMMAND" runs without one`)
  }
  if (argv.length > 0 && (flags.attach !== undefined || flags.shell !== undefined)) {
    throw new UsageError(`a command goes without ${flags.attach === undefined ? '--shell' : '--attach'}`)
  }
  const sandbox = await sandboxOf(id, flags)
  const terminal = flags.attach === undefined ? await start(sandbox, argv, flags) : await attach(sandbox, flags.attach)
  return await relay(id, terminal)
}

async function start(sandbox: Sandbox, argv: readonly string[], flags: Options): Promise<Terminal> {
  const { cwd, user, shell: program } = flags
  const script = cwd === undefined ? startInWorkspace : startCommand
  return await sandbox.terminal({
    ...sizeOf(process.stdout),
    shell: '/bin/sh',
    args: ['-c', script, 'sh', ...(program === undefined ? commandOf(argv) : [program])],
    ...{ cwd, user },
    envs: { TERM: process.env['TERM'] ?? 'xterm', ...flags.env },
  })
}

async function attach(sandbox: Sandbox, id: string): Promise<Terminal> {
  const terminal = sandbox.attachTerminal(checkedId(id, 'ps-', 'terminal'))
  await terminal.resize(sizeOf(process.stdout))
  return terminal
}

async function list(id: string, flags: Options): Promise<number> {
  const sandbox = await sandboxOf(id, flags)
  const terminals = (await sandbox.terminals()).filter(({ running }) => running)
  await writeList(terminals, flags, {
    ID: (one) => one.sessionID,
    STARTED: (one) => when(one.startedAt),
    ATTACHED: (one) => one.attachedClients,
    COMMAND: askedOf,
  })
  return 0
}

/** What was asked for, without the script that starts it. */
function askedOf({ command, args }: ProcessInfo): string {
  const [, script = '', , ...asked] = args
  if (script !== startInWorkspace && script !== startCommand) return [command, ...args].join(' ')
  return asked.join(' ') || 'shell'
}

export async function relay(id: string, terminal: Terminal): Promise<number> {
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
  passOutput()
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

/**
 * Has the terminal show what the sandbox writes as it is. Node's raw mode still turns a line feed into two characters (`OPOST`, `ONLCR`),
 * which breaks programs that place them themselves. The end of the raw mode restores this too.
 */
function passOutput(): void {
  spawnSync('stty', ['-opost'], { stdio: ['inherit', 'ignore', 'ignore'] })
}

export function sizeOf(terminal: NodeJS.WriteStream): { cols: number; rows: number } {
  // A terminal without a size says 0.
  return { cols: terminal.columns || 80, rows: terminal.rows || 24 }
}
