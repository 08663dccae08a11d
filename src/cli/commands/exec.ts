import { fstatSync } from 'node:fs'
import type { Command } from 'commander'
import { ConnectionError, type Process, type ProcessInfo, type Sandbox } from '../../../sdk/src/index.ts'
import { CliError, exitCodes, ownFailure, UsageError } from '../exit-codes.ts'
import { onInterrupt } from '../interrupt.ts'
import { commandOf, examples, pair, takesCommand, wholeNumber } from '../options.ts'
import { hint as suggest, writeJson, writeLine } from '../output.ts'
import { waiting } from '../progress.ts'
import { sandboxOf, type Flags } from '../settings.ts'

const signals = { interrupt: 2, kill: 9, closedPipe: 13 }
const exitCodeMax = 255
/** Bound of each stream. A text of V8 has at most 512 MiB. */
const jsonTextMax = 128 * 1024 * 1024

/** Ctrl-D: ends the input of a terminal at the beginning of a line, else it ends the line. */
const endOfInput = '\x04'
const lineEnd = 0x0a

interface Options extends Flags {
  interactive?: boolean
  input?: boolean
  tty?: boolean
  detach?: boolean
  cwd?: string
  env?: Record<string, string>
  user?: string
  timeout?: number
}

export function addExec(program: Command): void {
  takesCommand(program.command('exec'))
    .description('run a command in a sandbox and end with its exit code')
    .addHelpText(
      'after',
      examples(
        'atoll exec sb-0123456789abcdef ls -l /workspace',
        'atoll exec --cwd /workspace -e CI=1 sb-0123456789abcdef npm test',
        "atoll exec sb-0123456789abcdef 'ls | wc -l'",
        'atoll exec sb-0123456789abcdef <script.sh',
      ),
    )
    .argument('<sandbox>')
    .argument('[command...]', 'all that follows; one word with a blank runs under sh -c; none: sh reads standard input')
    .option('-i, --interactive', 'pass on standard input also from a terminal (default: from a pipe or a file)')
    .option('-n, --no-input', 'pass on no standard input, as in a loop that reads it itself')
    .option('-t, --tty', 'run it in a terminal: standard output and error are one')
    .option('-d, --detach', 'start it, print its id and leave it running')
    .option('--cwd <folder>', 'where it runs (default: the folder of the image)')
    .option('-e, --env <name=value>', 'a variable; may be repeated', pair)
    .option('--user <name>', 'who runs it (default: the user of the sandbox)')
    .option('--timeout <seconds>', 'kill it after so long, with exit code 124 (default: never)', wholeNumber)
    .exitOverride(ownFailure)
    .action(async (id: string, argv: string[], _options: Options, command: Command) => {
      const exitCode = await exec(id, argv, command.optsWithGlobals<Options>()).catch(ownFailure)
      process.exitCode = Math.min(Math.max(exitCode, 0), exitCodeMax)
    })
}

async function exec(id: string, argv: readonly string[], flags: Options): Promise<number> {
  assertFit(flags)
  const { interactive = false, detach = false, cwd, env: envs, user, timeout: timeoutSeconds } = flags
  const input = flags.input === false || detach ? undefined : inputOf(interactive)
  const [program, ...args] = argv
  if (program === undefined && (input === undefined || flags.tty)) {
    throw new UsageError(`no command; "atoll shell ${id}" opens a terminal`)
  }
  const sandbox = await sandboxOf(id, flags)
  if (flags.tty) return await execInTerminal(sandbox, id, argv, input, flags)
  const starting = sandbox.spawn(program ?? 'sh', {
    ...(args.length === 0 ? {} : { args }),
    ...{ cwd, envs, user, timeoutSeconds },
    // Input that was under way when a connection broke may be lost.
    reconnects: input === undefined,
  })
  // It may have to wake.
  const remote = await waiting(`waiting for ${id}`, starting)
  if (detach) return await leave(remote, id, flags)
  const restore = passInterrupts(remote)
  try {
    const fed = feed(remote, input)
    const known = async () => (await sandbox.spawned()).find(({ sessionID }) => sessionID === remote.id)
    const exitCode = await (flags.json ? collect(remote, known) : relay(remote))
    // Standard input may stay open for ever.
    fed.catch(() => undefined)
    return exitCode
  } catch (error) {
    if (!(error instanceof ConnectionError)) throw error
    const hint = `it may still run: atoll logs ${id} ${remote.id}`
    throw new CliError(error.message, { hint, exitCode: exitCodes.unreachable, cause: error })
  } finally {
    restore()
  }
}

function assertFit({ interactive, input, tty, detach, json, timeout }: Options): void {
  const refused = (one: string, other: string) => new UsageError(`${one} and ${other} do not go together`)
  if (interactive && input === false) throw refused('-i', '-n')
  if (interactive && detach) throw refused('-i', '-d')
  if (tty && detach) throw refused('-t', '-d')
  if (tty && json) throw refused('-t', '--json')
  if (tty && timeout !== undefined) throw refused('-t', '--timeout')
}

/** Ends its input, which nobody would write, and prints its id. */
async function leave(remote: Process, id: string, { json }: Flags): Promise<number> {
  await remote.end()
  remote.detach()
  if (json) await writeJson({ sessionID: remote.id })
  else await writeLine(remote.id)
  suggest(`atoll logs ${id} ${remote.id} --follow; atoll kill ${id} ${remote.id}`)
  return 0
}

/** With the terminal of this program, if it has one: its size, its keys and its signals. Else with input that is a pipe or a file. */
async function execInTerminal(
  sandbox: Sandbox,
  id: string,
  argv: readonly string[],
  input: NodeJS.ReadStream | undefined,
  { cwd, user, env, input: hasInput }: Options,
): Promise<number> {
  const { relay: relayTerminal, sizeOf } = await import('./shell.ts')
  const terminal = await sandbox.terminal({
    ...sizeOf(process.stdout),
    ...{ shell: '/bin/sh', args: ['-c', 'exec "$@"', 'sh', ...commandOf(argv)], cwd, user },
    envs: { TERM: process.env['TERM'] ?? 'xterm', ...env },
  })
  const { stdin, stdout } = process
  if (stdin.isTTY && stdout.isTTY && hasInput !== false) return await relayTerminal(id, terminal)
  const restore = onInterrupt(() => void terminal.write('\x03').catch(() => undefined))
  const fed = (async () => {
    let last: number | undefined = lineEnd
    for await (const chunk of input ?? []) {
      last = (chunk as Buffer).at(-1)
      await terminal.write(chunk as Buffer)
    }
    await terminal.write(last === lineEnd ? endOfInput : endOfInput + endOfInput)
  })()
  fed.catch(() => undefined)
  try {
    for await (const bytes of terminal) await written(stdout, bytes)
    return (await terminal.exited) ?? 0
  } finally {
    restore()
  }
}

/** Writes the output as it comes. */
async function relay(remote: Process): Promise<number> {
  const closed = { stdout: false, stderr: false }
  for (const name of ['stdout', 'stderr'] as const) {
    process[name].removeAllListeners('error')
    process[name].on('error', () => {
      // As the kernel signals a local writer whose reader has gone.
      if (!closed[name]) remote.kill(signals.closedPipe).catch(() => undefined)
      closed[name] = true
    })
  }
  for await (const { stream, data } of remote) {
    if (!closed[stream]) await written(process[stream], data)
  }
  const exitCode = await remote.exited
  if (remote.timedOut) process.stderr.write('atoll: the time limit ended the command\n')
  await assertWhole(remote)
  return exitCode
}

/** Writes the output in one object: what arrived, and the exit code if it is known, also when something failed. */
async function collect(remote: Process, read: () => Promise<ProcessInfo | undefined>): Promise<number> {
  const collected = { stdout: '', stderr: '' }
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() }
  let exitCode: number | undefined
  try {
    for await (const { stream, data } of remote) {
      if (collected[stream].length + data.length > jsonTextMax) {
        const hint = 'without --json it is written as it comes'
        throw new CliError(`${stream} has more than ${jsonTextMax} bytes, which is too much for --json`, { hint })
      }
      collected[stream] += decoders[stream].decode(data, { stream: true })
    }
    exitCode = await remote.exited
    await assertWhole(remote)
    return exitCode
  } catch (error) {
    exitCode ??= (await read().catch(() => undefined))?.exitCode ?? undefined
    throw error
  } finally {
    for (const stream of ['stdout', 'stderr'] as const) collected[stream] += decoders[stream].decode()
    await writeJson({ exitCode: exitCode ?? null, ...(remote.timedOut ? { timedOut: true } : {}), ...collected })
  }
}

/** Throws if output is lost, to a long break of the connection or to a reader that stood still. */
async function assertWhole(remote: Process): Promise<void> {
  const lostBytes = await remote.lost()
  if (lostBytes === 0) return
  const message = `${lostBytes} bytes of the output are lost: the command went on while nothing was read`
  throw new CliError(message, { hint: 'have it write to a file, and get that with atoll cp' })
}

/** Waits for a slow reader, but not for one that is gone. */
async function written(stream: NodeJS.WriteStream, data: Uint8Array): Promise<void> {
  await new Promise<void>((resolve) => {
    stream.write(data, () => resolve())
  })
}

/** A pipe or a file is passed on, a terminal when asked for, and nothing else. */
function inputOf(isInteractive: boolean): NodeJS.ReadStream | undefined {
  if (isInteractive) return process.stdin
  try {
    const stat = fstatSync(0)
    return stat.isFIFO() || stat.isFile() || stat.isSocket() ? process.stdin : undefined
  } catch {
    return undefined
  }
}

async function feed(remote: Process, input: NodeJS.ReadStream | undefined): Promise<void> {
  if (input !== undefined) for await (const chunk of input) await remote.write(chunk as Buffer)
  await remote.end()
}

/** The first Ctrl-C interrupts the command, the second kills it, the third ends this program alone. */
function passInterrupts(remote: Process): () => void {
  let count = 0
  return onInterrupt(() => {
    count += 1
    if (count > 2) process.exit(exitCodes.interrupted)
    remote.kill(count === 1 ? signals.interrupt : signals.kill).catch(() => process.exit(exitCodes.interrupted))
  })
}
