import { createReadStream } from 'node:fs'
import { chmod, open, rename, rm, stat, type FileHandle } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { runCommand } from './command.ts'
import { AtollError, ConnectionError, InvalidRequestError, NotFoundError, withMessage } from './errors.ts'
import { Files } from './files.ts'
import { pause } from './retry.ts'
import { nameOf, type Remote } from './transfer.ts'

const attemptsMax = 8
const attemptPauseMs = 500
const executable = 0o111

/** Sends a file. A break on the way leaves what was at the target before. */
export async function uploadFile(remote: Remote, source: string, target: string): Promise<void> {
  const { client, sandboxPath, user, signal, onProgress } = remote
  const found = await stat(source)
  // A pipe that nobody writes would keep the program from its end.
  if (!found.isFile()) throw new AtollError(`${source} on this machine is no regular file`)
  const { size, mode } = found
  const file = createReadStream(source)
  const pieces = file[Symbol.asyncIterator]() as AsyncIterator<Buffer<ArrayBuffer>, undefined>
  let bytes = 0
  const content = new ReadableStream<Uint8Array<ArrayBuffer>>({
    async pull(controller) {
      const { value } = await pieces.next()
      if (value === undefined) return controller.close()
      bytes += value.length
      onProgress?.({ bytes, total: size })
      controller.enqueue(value)
    },
  })
  try {
    await new Files(client, sandboxPath).write(target, content, { user, signal })
  } catch (error) {
    signal?.throwIfAborted()
    throw withMessage(error, (reason) => `the upload to ${nameOf(remote, target)} was not completed: ${reason}`)
  } finally {
    file.destroy()
  }
  if ((mode & executable) !== 0) await makeExecutable(remote, target)
}

async function makeExecutable(remote: Remote, path: string): Promise<void> {
  const { client, sandboxPath, user, signal } = remote
  const args = ['+x', '--', path]
  const { exitCode, stderr } = await runCommand(client, `${sandboxPath}/exec`, 'chmod', { args, user, signal })
  if (exitCode !== 0) throw new AtollError(`${nameOf(remote, path)} could not be made executable: ${stderr.trim()}`)
}

async function isExecutable({ client, sandboxPath, user, signal }: Remote, path: string): Promise<boolean> {
  const { exitCode } = await runCommand(client, `${sandboxPath}/exec`, 'test', { args: ['-x', path], user, signal })
  return exitCode === 0
}

/** Copies a file from sandbox to sandbox by this machine, which keeps nothing of it. A break leaves what was at the target before. */
export async function copyFile(from: Remote, source: string, to: Remote, target: string): Promise<void> {
  const { signal, onProgress } = from
  const files = new Files(from.client, from.sandboxPath)
  const total = await files.size(source, { user: from.user, signal })
  if (total === undefined) {
    throw new NotFoundError(`there is no file ${nameOf(from, source)}`, { code: 'not_found', status: 404 })
  }
  const pieces = (await files.readStream(source, { user: from.user, signal })).getReader()
  let bytes = 0
  const content = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { value } = await pieces.read()
      if (value === undefined && bytes !== total) throw new AtollError('the file changed while it was read')
      if (value === undefined) return controller.close()
      bytes += value.length
      onProgress?.({ bytes, total })
      controller.enqueue(value)
    },
    cancel: (reason) => pieces.cancel(reason),
  })
  try {
    await new Files(to.client, to.sandboxPath).write(target, content, { user: to.user, signal })
  } catch (error) {
    signal?.throwIfAborted()
    throw withMessage(error, (reason) => `the copy to ${nameOf(to, target)} was not completed: ${reason}`)
  } finally {
    await pieces.cancel().catch(() => undefined)
  }
  if (await isExecutable(from, source)) await makeExecutable(to, target)
}

const nameBytesMax = 255
const draftEnding = '.atoll-part'

/** Beside the target. A name that is as long as names may be is cut for it. */
function draftOf(target: string): string {
  const place = dirname(target)
  const name = Buffer.from(basename(target)).subarray(0, nameBytesMax - draftEnding.length)
  return join(place, `${name.toString().replaceAll('\ufffd', '')}${draftEnding}`)
}

/** Downloads under another name first, so that a break leaves no partial file under the final name. */
export async function downloadFile(remote: Remote, source: string, target: string): Promise<void> {
  const { client, sandboxPath, user, signal } = remote
  const size = await new Files(client, sandboxPath).size(source, { user, signal })
  if (size === undefined) {
    throw new NotFoundError(`there is no file ${nameOf(remote, source)}`, { code: 'not_found', status: 404 })
  }
  const isRegular = await stat(target).then(
    (found) => found.isFile(),
    () => true,
  )
  const draft = isRegular ? draftOf(target) : target
  const file = await open(draft, 'w').catch((error: unknown) => {
    throw withMessage(error, (reason) => `the download to ${target} was not begun: ${reason}`)
  })
  const receiving = { source, file, size, bytes: 0 }
  try {
    await receive(remote, receiving)
    await file.close()
    if (isRegular) await rename(draft, target)
  } catch (error) {
    await file.close().catch(() => undefined)
    const { bytes } = receiving
    // A source that cannot be read leaves no draft.
    if (bytes === 0 && isRegular) await rm(draft, { force: true })
    signal?.throwIfAborted()
    const left = bytes === 0 || !isRegular ? '' : `; ${draft} is left behind, with ${bytes} bytes of ${size}`
    throw withMessage(error, (reason) => `the download to ${target} was not completed: ${reason}${left}`)
  }
  if (!isRegular) return
  if (await isExecutable(remote, source)) await chmod(target, 0o777 & ~process.umask())
}

interface Receiving {
  readonly source: string
  readonly file: FileHandle
  readonly size: number
  bytes: number
}

/** Continues where a connection broke. */
async function receive(remote: Remote, receiving: Receiving): Promise<void> {
  const { file, size } = receiving
  for (let failures = 0; receiving.bytes < size;) {
    const before = receiving.bytes
    try {
      for await (const chunk of await streamFrom(remote, receiving.source, before)) {
        await file.writeFile(chunk)
        receiving.bytes += chunk.length
        remote.onProgress?.({ bytes: receiving.bytes, total: size })
      }
      if (receiving.bytes < size) throw new ConnectionError('the connection broke')
    } catch (error) {
      remote.signal?.throwIfAborted()
      if (isLocal(error) || (error instanceof AtollError && !(error instanceof ConnectionError))) throw error
      failures = receiving.bytes > before ? 1 : failures + 1
      if (failures >= attemptsMax) throw error
      await pause(attemptPauseMs * failures, remote.signal ?? undefined)
    }
  }
  if (receiving.bytes > size) throw new AtollError('the file changed while it was read')
}

async function streamFrom(
  { client, sandboxPath, user, signal }: Remote,
  source: string,
  offset: number,
): Promise<ReadableStream<Uint8Array>> {
  try {
    return await new Files(client, sandboxPath).readStream(source, { offset, user, signal })
  } catch (error) {
    const isShorter = offset > 0 && error instanceof InvalidRequestError
    throw isShorter ? new AtollError('the file changed while it was read', { cause: error }) : error
  }
}

/** Whether the error is of this machine, such as a full disk. */
function isLocal(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).syscall === 'write'
}
