import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { isServiceError, ServiceError } from '../../errors.ts'
import { backupSocket, type CutAnswer, cutAnswerSchema, messages, okOf, type Request, say } from './wire.ts'

/** The connection of the backup program to the server. */
export class BackupConnection implements Disposable {
  readonly #socket: Socket
  readonly #messages: AsyncGenerator
  readonly #closed = new AbortController()

  private constructor(socket: Socket) {
    this.#socket = socket
    this.#messages = messages(socket)
    const gone = () => this.#closed.abort(isGone())
    socket.on('error', gone)
    socket.on('close', gone)
  }

  /** Throws `unavailable` when no server runs, and `forbidden`. */
  static async open(dataDir: string): Promise<BackupConnection> {
    let path: string
    try {
      path = backupSocket(dataDir)
    } catch (error) {
      throw new ServiceError('not_found', `there is no data directory ${dataDir}: give ATOLL_DATA_DIR`, {
        cause: error,
      })
    }
    const socket = connect(path)
    try {
      await once(socket, 'connect')
    } catch (error) {
      const why = `no server runs on the data directory ${dataDir}, or it is still starting`
      throw new ServiceError('unavailable', `${why}: start it, and give this command its variables`, { cause: error })
    }
    return new BackupConnection(socket)
  }

  /** Aborted when the server is gone, which removes the snapshots of a backup. */
  get signal(): AbortSignal {
    return this.#closed.signal
  }

  async cut(last: Extract<Request, { do: 'cut' }>['last']): Promise<CutAnswer> {
    return cutAnswerSchema.parse(await this.ask({ do: 'cut', last }))
  }

  async ask(request: Request): Promise<unknown> {
    say(this.#socket, request)
    try {
      const { value, done } = await this.#messages.next()
      if (done !== true) return okOf(value)
    } catch (error) {
      if (isServiceError(error)) throw error
    }
    throw isGone()
  }

  [Symbol.dispose](): void {
    this.#socket.destroy()
  }
}

function isGone(): ServiceError {
  return new ServiceError('unavailable', 'the server has ended: start it and repeat the backup')
}
