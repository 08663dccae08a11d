import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { spawnCommand } from './command.ts'
import { AtollError, withMessage } from './errors.ts'
import { findArguments, Ignore } from './ignore.ts'
import type { Process } from './process.ts'
import { nameOf, type Remote } from './transfer.ts'
import { unpackArchive } from './unpack.ts'

/** A `tar` whose reader or writer here is gone ends soon. */
const disconnectSeconds = 30
const errorCharactersMax = 2000

/** Pieces of one tar stream, and how many of them may be on the way. What the sandbox retains of output is more than that. */
const pieceBytes = 256 * 1024
const piecesAhead = 2
/** A grant may be lost with its connection, so it is repeated. It is absolute: a repeat has no second effect. */
const grantMs = 2_000

/** `tar` ends at the end of the archive. What fills up its last record follows, and the sender must not meet a closed end. */
const unpack = 'mkdir -p -- "$1" && tar -xof - -C "$1" && cat >/dev/null'

/**
 * A command's output has no flow control, and a slow reader loses its beginning. So `tar` sends a piece only when it was granted: standard
 * input has the number of the last granted piece. `tar` fills whole pieces (`-b`, in blocks of 512 bytes), and its exit status is the last
 * line of standard error.
 */
const pack = `cd -- "$1" || exit 2
what=$2
shift 2
export LC_ALL=C
listed() { tar -b ${pieceBytes / 512} --no-recursion --null -T - -cf -; }
pack() {
  case $what in
    all) tar -b ${pieceBytes / 512} -cf - . ;;
    left) find . "$@" -print0 | listed ;;
    names) printf '%b\\0' "$@" | listed ;;
  esac
}
exec 4<&0 5>&1
{ pack "$@" </dev/null 4<&- 5>&-; echo "tar: $?" >&2; } | {
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
export async function uploadFolder(to: Remote, source: string, target: string): Promise<void> {
  await writeTar(to, target, archiveOf(source, to))
}

/** Sends what the names say, strings of bytes, folders without what they hold. */
export async function uploadNames(to: Remote, source: string, target: string, names: Iterable<string>): Promise<void> {
  await writeTar(to, target, archiveOfNames(source, names))
}

/** Copies a folder from sandbox to sandbox by this machine, which keeps nothing of it. */
export async function copyFolder(from: Remote, source: string, to: Remote, target: string): Promise<void> {
  await writeTar(to, target, readTar(from, source))
}

/** Unpacks a tar stream below a folder of the sandbox. */
export async function writeTar(to: Remote, target: string, archive: AsyncIterable<Uint8Array>): Promise<void> {
  const { client, sandboxPath, user, signal } = to
  const remote = await spawnCommand(client, `${sandboxPath}/exec`, 'sh', {
    args: ['-c', unpack, 'sh', target],
    user,
    signal,
    maxRunAfterDisconnectSeconds: disconnectSeconds,
    reconnects: false,
  })
  try {
    const errors = textOf(remote)
    const sent = send(archive, remote, to)
    // The error of the remote end explains more than the broken pipe that follows it.
    const first = await Promise.race([errors, sent.then(() => undefined)])
    if (first === undefined) await errors
    const status = await remote.exited
    if (status !== 0) throw new AtollError(`tar in the sandbox ended with ${status}: ${lastLines(await errors)}`)
    await sent
  } catch (error) {
    signal?.throwIfAborted()
    const left = `${nameOf(to, target)} is left incomplete`
    throw withMessage(error, (reason) => `the upload was not completed: ${reason}; ${left}`)
  } finally {
    remote.detach()
  }
}

/** Downloads the content of a folder, and continues after a broken connection. */
export async function downloadFolder(from: Remote, source: string, target: string): Promise<void> {
  await unpackHere(from, readTar(from, source), target)
}

/** Downloads what the names say, strings of bytes, folders without what they hold. They must fit into the arguments of a command. */
export async function downloadNames(
  from: Remote,
  source: string,
  target: string,
  names: readonly string[],
): Promise<void> {
  await unpackHere(from, packed(from, source, ['names', ...names.map(printfArgument)]), target)
}

async function unpackHere(from: Remote, archive: AsyncIterable<Uint8Array>, target: string): Promise<void> {
  let bytes = 0
  const counted = async function* () {
    for await (const data of archive) {
      yield data
      bytes += data.length
      from.onProgress?.({ bytes })
    }
  }
  try {
    await unpackArchive(counted(), target)
  } catch (error) {
    from.signal?.throwIfAborted()
    throw withMessage(error, (reason) => `the download was not completed: ${reason}; ${target} is left incomplete`)
  }
}

/** What a folder holds as a tar stream. It continues after a broken connection. */
export function readTar(from: Remote, source: string): AsyncGenerator<Uint8Array> {
  const { exclude = [], gitignore = false } = from
  if (gitignore) throw new TypeError('gitignore: is for folders of this machine')
  return packed(from, source, exclude.length === 0 ? ['all'] : ['left', ...findArguments(exclude)])
}

/** A name, a string of bytes, as `printf %b` takes it, since arguments are text. */
export function printfArgument(name: string): string {
  const escaped = name.replaceAll(/[^\w./-]/g, (byte) => `\\0${byte.charCodeAt(0).toString(8).padStart(3, '0')}`)
  return `./${escaped}`
}

async function* packed(from: Remote, source: string, what: readonly string[]): AsyncGenerator<Uint8Array> {
  const { client, sandboxPath, user, signal } = from
  const remote = await spawnCommand(client, `${sandboxPath}/exec`, 'sh', {
    args: ['-c', pack, 'sh', source, ...what],
    user,
    signal,
    maxRunAfterDisconnectSeconds: disconnectSeconds,
  })
  let bytes = 0
  const grant = () => void remote.write(`${Math.floor(bytes / pieceBytes) + piecesAhead}\n`).catch(() => undefined)
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
      yield data
      bytes += data.length
      if (bytes < (granted + 1) * pieceBytes) continue
      granted = Math.floor(bytes / pieceBytes)
      grant()
    }
    const status = Number(/^tar: (\d+)$/m.exec(errors)?.[1] ?? (await remote.exited))
    // 1: a file changed while it was read.
    if (status > 1) throw new AtollError(`tar in the sandbox ended with ${status}: ${lastLines(errors)}`)
  } finally {
    clearInterval(repeated)
    remote.detach()
  }
}

interface LocalTar extends ChildProcess {
  /** The end of standard error. */
  said: string
}

function localTar(argv: readonly string[], purpose: 'read' | 'list'): LocalTar {
  const input = purpose === 'read' ? 'ignore' : 'pipe'
  // On macOS tar would add files of its own.
  const env = { ...process.env, COPYFILE_DISABLE: '1' }
  const tar = Object.assign(spawn('tar', argv, { stdio: [input, 'pipe', 'pipe'], env }), { said: '' })
  tar.stderr?.on('data', (chunk: Buffer) => {
    tar.said = (tar.said + chunk.toString()).slice(-errorCharactersMax)
  })
  tar.on('error', (error) => {
    tar.said = `tar cannot be started: ${error.message}`
  })
  // The exit status of `tar` explains more.
  tar.stdin?.on('error', () => undefined)
  const kill = () => void tar.kill()
  process.once('exit', kill)
  tar.once('close', () => process.off('exit', kill))
  return tar
}

async function ended(tar: LocalTar): Promise<void> {
  if (tar.exitCode === null && tar.signalCode === null) await once(tar, 'close').catch(() => undefined)
  if (tar.exitCode !== 0)
    throw new AtollError(`tar ended with ${tar.exitCode ?? tar.signalCode}: ${lastLines(tar.said)}`)
}

async function feed(tar: LocalTar, data: Uint8Array): Promise<void> {
  if (tar.stdin === null || tar.exitCode !== null || !tar.stdin.writable) return await ended(tar)
  await new Promise<void>((resolve) => tar.stdin?.write(data, () => resolve()))
}

/** `tar` starts with the first read: Node drops what a process that has ended wrote before. */
async function* archiveOf(source: string, { exclude = [], gitignore = false }: Remote): AsyncGenerator<Uint8Array> {
  if (exclude.length > 0 || gitignore) return yield* archiveOfNames(source, namesLeft(source, exclude, gitignore))
  const tar = localTar(['-cf', '-', '-C', source, '.'], 'read')
  try {
    if (tar.stdout !== null) yield* tar.stdout as AsyncIterable<Buffer>
    await ended(tar)
  } finally {
    tar.kill()
  }
}

async function* namesLeft(source: string, exclude: readonly string[], gitignore: boolean): AsyncGenerator<string> {
  yield '.'
  for await (const { path } of new Ignore(exclude, { gitignore }).walk(source)) yield path
}

async function* archiveOfNames(
  source: string,
  names: Iterable<string> | AsyncIterable<string>,
): AsyncGenerator<Uint8Array> {
  const tar = localTar(['-cf', '-', '-C', source, '--no-recursion', '--null', '-T', '-'], 'list')
  try {
    const listed = list(tar, names)
    // The wait below tells it.
    listed.catch(() => tar.kill())
    if (tar.stdout !== null) yield* tar.stdout as AsyncIterable<Buffer>
    await listed
    await ended(tar)
  } finally {
    tar.kill()
  }
}

async function list(tar: LocalTar, names: Iterable<string> | AsyncIterable<string>): Promise<void> {
  for await (const name of names) await feed(tar, Buffer.from(name === '.' ? '.\0' : `./${name}\0`, 'latin1'))
  tar.stdin?.end()
}

async function send(archive: AsyncIterable<Uint8Array>, remote: Process, { onProgress }: Remote): Promise<void> {
  let bytes = 0
  for await (const chunk of archive) {
    await remote.write(chunk)
    bytes += chunk.length
    onProgress?.({ bytes })
  }
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
