import { createReadStream } from 'node:fs'
import { chmod, open, rename, rm, stat, type FileHandle } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { AtollError, ConnectionError, InvalidRequestError, type Sandbox } from '../../sdk/src/index.ts'
import { CliError, exitCodeOf } from './exit-codes.ts'
import { onExit } from './interrupt.ts'
import { note } from './output.ts'
import { Progress } from './progress.ts'

const attemptsMax = 8
const attemptPauseMs = 500
const executable = 0o111

/** The side of a copy that is in a sandbox. */
export interface Remote {
  sandbox: Sandbox
  /** With whose rights files are reached there. Undefined: those of the sandbox's user. */
  user: string | undefined
}

/** Sends a file. A break on the way leaves what was at the target before. */
export async function uploadFile(remote: Remote, source: string, target: string): Promise<void> {
  const { sandbox, user } = remote
  const { size, mode } = await stat(source)
  const progress = new Progress(target, size)
  const counted = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      progress.add(chunk.length)
      controller.enqueue(chunk)
    },
  })
  const file = createReadStream(source)
  try {
    const content = ReadableStream.from<Uint8Array>(file).pipeThrough(counted)
    await sandbox.files.write(target, content, { user })
  } catch (error) {
    if (!(error instanceof AtollError)) throw error
    const message = `the upload to ${sandbox.id}:${target} was not completed: ${error.message}`
    throw new CliError(message, { exitCode: exitCodeOf(error), cause: error })
  } finally {
    file.destroy()
    progress.end()
  }
  if ((mode & executable) !== 0) await makeExecutable(remote, target)
}

/** Downloads under another name first, so that a break leaves no partial file under the final name. */
export async function downloadFile(remote: Remote, source: string, target: string): Promise<void> {
  const { sandbox, user } = remote
  const size = await sandbox.files.size(source, { user })
  if (size === undefined) throw new CliError(`there is no file ${sandbox.id}:${source}`, { exitCode: 5 })
  const isRegular = await stat(target).then(
    (found) => found.isFile(),
    () => true,
  )
  const draft = isRegular ? `${target}.atoll-part` : target
  const progress = new Progress(target, size)
  const told = onExit(() => {
    if (isRegular) process.stderr.write(`atoll: ${draft} is left behind, with ${progress.bytes} bytes of ${size}\n`)
  })
  const file = await open(draft, 'w')
  try {
    await receive(remote, source, file, { size, progress })
    await file.close()
    if (isRegular) await rename(draft, target)
  } catch (error) {
    await file.close().catch(() => undefined)
    // A source that cannot be read leaves no draft.
    if (progress.bytes === 0 && isRegular) await rm(draft, { force: true })
    const left =
      progress.bytes === 0 || !isRegular ? '' : `; ${draft} is left behind, with ${progress.bytes} bytes of ${size}`
    const message = `the download to ${target} was not completed: ${(error as Error).message}${left}`
    throw new CliError(message, { exitCode: exitCodeOf(error), cause: error })
  } finally {
    told()
    progress.end()
  }
  if (isRegular && (await isExecutable(remote, source))) await chmod(target, 0o777 & ~process.umask())
}

interface Receiving {
  size: number
  progress: Progress
}

/** Continues where a connection broke. */
async function receive(remote: Remote, source: string, file: FileHandle, { size, progress }: Receiving): Promise<void> {
  for (let failures = 0; progress.bytes < size;) {
    const before = progress.bytes
    try {
      for await (const chunk of await streamFrom(remote, source, before)) {
        await file.writeFile(chunk)
        progress.add(chunk.length)
      }
      if (progress.bytes < size) throw new ConnectionError('the connection broke')
    } catch (error) {
      if (error instanceof CliError || isLocal(error)) throw error
      if (error instanceof AtollError && !(error instanceof ConnectionError)) throw error
      failures = progress.bytes > before ? 1 : failures + 1
      if (failures >= attemptsMax) throw error
      await sleep(attemptPauseMs * failures)
    }
  }
  if (progress.bytes > size) throw new CliError('the file changed while it was read')
}

async function streamFrom(
  { sandbox, user }: Remote,
  source: string,
  offset: number,
): Promise<AsyncIterable<Uint8Array>> {
  try {
    return await sandbox.files.readStream(source, { offset, user })
  } catch (error) {
    const isShorter = offset > 0 && error instanceof InvalidRequestError
    throw isShorter ? new CliError('the file changed while it was read', { cause: error }) : error
  }
}

/** Whether the error is of this machine, such as a full disk. */
function isLocal(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).syscall === 'write'
}

async function makeExecutable({ sandbox, user }: Remote, path: string): Promise<void> {
  const { exitCode } = await sandbox.run('chmod', { args: ['+x', '--', path], user })
  if (exitCode !== 0) note(`${path} could not be made executable`)
}

async function isExecutable({ sandbox, user }: Remote, path: string): Promise<boolean> {
  return (await sandbox.run('test', { args: ['-x', path], user })).exitCode === 0
}
