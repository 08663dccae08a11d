import { once } from 'node:events'
import { chmod, rm } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { isServiceError, ServiceError } from '../../errors.ts'
import type { Log } from '../../lib/log.ts'
import type { PoolBackups } from '../../runtime/index.ts'
import type { ExportedSnapshot, Store } from '../../store/index.ts'
import { backupSocket, type CutAnswer, messages, type Request, requestSchema, say } from './wire.ts'

interface BackupServiceOptions {
  dataDir: string
  store: Pick<Store, 'exportSnapshot'>
  backups: PoolBackups
  /** The keys of secrets stay while a backup has the rows and may not have the file yet. */
  holdKeys: () => Disposable
  log: Log
}

/** Serves backups, one at a time, until it is disposed of. The driver is open. */
export async function serveBackups(options: BackupServiceOptions): Promise<AsyncDisposable> {
  const { dataDir, backups, log } = options
  // Snapshots of a server that was killed during a backup.
  await backups.removeDrafts().catch((error: unknown) => log.warn({ err: error }, 'snapshots of a backup stay'))
  const sockets = new Set<Socket>()
  /** The connection of the backup under way. */
  let live: Socket | undefined
  let lastSession: Promise<void> = Promise.resolve()
  const server = createServer((socket) => {
    // The end of the connection is all that counts.
    socket.on('error', () => undefined)
    sockets.add(socket)
    socket.on('close', () => {
      sockets.delete(socket)
      if (live === socket) live = undefined
    })
    if (live !== undefined) {
      refuse(socket)
      return
    }
    live = socket
    // One whose client has gone may still remove what it has made.
    lastSession = lastSession.then(() => serve(options, socket))
  })
  const path = backupSocket(dataDir)
  await rm(path, { force: true })
  server.listen(path)
  await once(server, 'listening')
  await chmod(path, 0o600)
  server.unref()
  return {
    async [Symbol.asyncDispose]() {
      const closed = new Promise((resolve) => server.close(resolve))
      for (const socket of sockets) socket.destroy()
      await lastSession
      await closed
    },
  }
}

function refuse(socket: Socket): void {
  say(socket, { error: { code: 'conflict', message: 'another backup is under way' } })
  socket.end()
  // Only a socket that is read reports its end.
  socket.resume()
}

/** Never throws: what a backup needs to know is an answer, and the rest is logged. */
async function serve(options: BackupServiceOptions, socket: Socket): Promise<void> {
  const { backups, log } = options
  using holds = new DisposableStack()
  holds.use(options.holdKeys())
  const session: BackupSession = { ...options, database: undefined }
  try {
    for await (const message of messages(socket)) say(socket, await answerTo(session, requestSchema.parse(message)))
  } catch (error) {
    log.info({ err: error }, 'a backup was cut off')
  } finally {
    socket.destroy()
    await session.database?.[Symbol.asyncDispose]()
    await backups
      .removeDrafts()
      .catch((error: unknown) => log.warn({ err: error }, 'snapshots of a backup stay until the next one'))
  }
}

interface BackupSession extends BackupServiceOptions {
  database: ExportedSnapshot | undefined
}

async function answerTo(session: BackupSession, request: Request): Promise<object> {
  const { backups, log } = session
  try {
    switch (request.do) {
      case 'cut':
        return await cut(session, request.last)
      case 'release':
        await session.database?.[Symbol.asyncDispose]()
        session.database = undefined
        return {}
      case 'keep':
        await backups.keep()
        return {}
      case 'drop':
        await backups.removeAllBut(request.but)
        return {}
    }
  } catch (error) {
    log.warn({ err: error, step: request.do }, 'a step of a backup has failed')
    const { code, message } = isServiceError(error)
      ? error
      : new ServiceError('unavailable', `the server: ${String(error)}`)
    return { error: { code, message } }
  }
}

async function cut(session: BackupSession, last: Parameters<PoolBackups['cut']>[0]): Promise<CutAnswer> {
  const { store, backups, log } = session
  if (session.database !== undefined) throw new ServiceError('conflict', 'a backup has one cut')
  const taken = await backups.cut(last, async () => (session.database = await store.exportSnapshot()))
  const { databaseUrl, id, major } = taken.result
  const { cut: made, heldMs } = taken
  log.info({ subvolumes: made.subvolumes.length, heldMs }, 'a backup has its cut')
  return { cut: made, database: { databaseUrl, id, major }, heldMs }
}
