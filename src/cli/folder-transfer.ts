import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir } from 'node:fs/promises'
import { ConnectionError, type Process } from '../../sdk/src/index.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import type { Remote } from './file-transfer.ts'
import { onExit } from './interrupt.ts'
import { Progress } from './progress.ts'

/** A `tar` whose reader or writer here is gone ends soon. */
const disconnectSeconds = 30
const errorCharactersMax = 2000

/** Pieces of one tar stream, and how many of them may be on the way. What the sandbox retains of output is more than that. */
const pieceBytes = 256 * 1024
const piecesAhead = 2
/** A grant may be lost with its connection, so it is repeated. It is absolute: a repeat has no second effect. */
const grantMs = 2_000

const unpack = 'mkdir -p -- "$1" && exec tar -xof - -C "$1"'

/**
 * A command's output has no flow control, and a slow reader loses its beginning. So `tar` sends a piece only when it was granted: standard
 * input has the number of the last granted piece. `tar` fills whole pieces (`-b`, in blocks of 512 bytes), and its exit status is the last
 * line of standard error.
 */
const pack = `cd -- "$1" || exit 2
export LC_ALL=C
exec 4<&0 5>&1
{ tar -b ${pieceBytes / 512} -cf - . </dev/null 4<&- 5>&-; echo "tar: $?" >&2; } | {
  sent=0
  while read -r granted <&4; do
    while [ "$sent" -lt "$granted" ]; do
      case $(dd bs=${pieceBytes} count=1 iflag=fullblock 2>&1 >&5) in
        *'0+0 records in'*) exit 0 ;;
        *'records in'*) sent=$((sent + 1)) ;;
        *) exit 3 ;;
      esac
    done
  done
}`

/** Sends what a folder holds as one tar stream, so that names may have any bytes. */
export async function uploadFolder({ sandbox, user }: Remote, source: string, target: string): Promise<void> {
  const remote = await sandbox.spawn('sh', {
    args: ['-c', unpack, 'sh', target],
    user,
    maxRunAfterDisconnectSeconds: disconnectSeconds,
    reconnects: false,
  })
  const tar = localTar(['-cf', '-', '-C', source, '.'], 'read')
  const progress = new Progress(target)
  const left = `; ${sandbox.id}:${target} is left incomplete`
  try {
    const errors = textOf(remote)
    const sent = send(tar, remote, progress)
    // The error of the remote end explains more than the broken pipe that follows it.
    const first = await Promise.race([errors, sent.then(() => undefined)])
    if (first === undefined) await errors
    const status = await remote.exited
    if (status !== 0) throw new CliError(`tar in the sandbox ended with ${status}: ${lastLines(await errors)}`)
    await sent
  } catch (error) {
    throw notCompleted('upload', error, left)
  } finally {
    tar.kill()
    remote.detach()
    progress.end()
  }
}

/** Downloads the content of a folder, and continues after a broken connection. */
export async function downloadFolder({ sandbox, user }: Remote, source: string, target: string): Promise<void> {
  const remote = await sandbox.spawn('sh', {
    args: ['-c', pack, 'sh', source],
    user,
    maxRunAfterDisconnectSeconds: disconnectSeconds,
  })
  await mkdir(target, { recursive: true })
  // As root, tar would also restore set-user-ID bits.
  const tar = localTar(['--no-same-permissions', '-xof', '-', '-C', target], 'write')
  const progress = new Progress(target)
  const left = `; ${target} is left incomplete`
  const told = onExit(() => process.stderr.write(`atoll: the download was not completed${left}\n`))
  const grant = () =>
    void remote.write(`${Math.floor(progress.bytes / pieceBytes) + piecesAhead}\n`).catch(() => undefined)
  const repeated = setInterval(grant, grantMs)
  try {
    let errors = ''
    let granted = 0
    grant()
    for await (const { stream, data } of remote) {
      if (stream === 'stderr') {
        errors = (errors + Buffer.from(data).toString()).slice(-errorCharactersMax)
        continue
      }
      await feed(tar, data)
      progress.add(data.length)
      if (progress.bytes < (granted + 1) * pieceBytes) continue
      granted = Math.floor(progress.bytes / pieceBytes)
      grant()
    }
    const status = Number(/^tar: (\d+)$/m.exec(errors)?.[1] ?? (await remote.exited))
    // 1: a file changed while it was read.
    if (status > 1) throw new CliError(`tar in the sandbox ended with ${status}: ${lastLines(errors)}`)
    tar.stdin?.end()
    await ended(tar)
  } catch (error) {
    throw notCompleted('download', error, left)
  } finally {
    clearInterval(repeated)
    tar.kill()
    remote.detach()
    told()
    progress.end()
  }
}

interface LocalTar extends ChildProcess {
  /** The end of standard error. */
  said: string
}

function localTar(argv: readonly string[], purpose: 'read' | 'write'): LocalTar {
  const input = purpose === 'write' ? 'pipe' : 'ignore'
  const output = purpose === 'read' ? 'pipe' : 'ignore'
  // On macOS tar would add files of its own.
  const env = { ...process.env, COPYFILE_DISABLE: '1' }
  const tar = Object.assign(spawn('tar', argv, { stdio: [input, output, 'pipe'], env }), { said: '' })
  tar.stderr?.on('data', (chunk: Buffer) => {
    tar.said = (tar.said + chunk.toString()).slice(-errorCharactersMax)
  })
  tar.on('error', (error) => {
    tar.said = `tar cannot be started: ${error.message}`
  })
  // The exit status of `tar` explains more.
  tar.stdin?.on('error', () => undefined)
  const forget = onExit(() => tar.kill())
  tar.once('close', forget)
  return tar
}

async function ended(tar: LocalTar): Promise<void> {
  if (tar.exitCode === null && tar.signalCode === null) await once(tar, 'close').catch(() => undefined)
  if (tar.exitCode !== 0) throw new CliError(`tar ended with ${tar.exitCode ?? tar.signalCode}: ${lastLines(tar.said)}`)
}

async function feed(tar: LocalTar, data: Uint8Array): Promise<void> {
  if (tar.stdin === null || tar.exitCode !== null || !tar.stdin.writable) return await ended(tar)
  await new Promise<void>((resolve) => tar.stdin?.write(data, () => resolve()))
}

async function send(tar: LocalTar, remote: Process, progress: Progress): Promise<void> {
  const output = tar.stdout as AsyncIterable<Buffer> | null
  if (output !== null) {
    for await (const chunk of output) {
      await remote.write(chunk)
      progress.add(chunk.length)
    }
  }
  await ended(tar)
  await remote.end()
}

async function textOf(remote: Process): Promise<string> {
  let text = ''
  for await (const { data } of remote) text = (text + Buffer.from(data).toString()).slice(-errorCharactersMax)
  return text
}

function lastLines(text: string): string {
  const lines = text.split('\n').filter((line) => line.trim() !== '' && !/^tar: \d+$/.test(line))
  return lines.slice(-2).join('; ') || 'it said nothing'
}

function notCompleted(what: string, error: unknown, left: string): CliError {
  const exitCode = error instanceof ConnectionError ? exitCodes.unreachable : exitCodes.failed
  return new CliError(`the ${what} was not completed: ${(error as Error).message}${left}`, { exitCode, cause: error })
}
