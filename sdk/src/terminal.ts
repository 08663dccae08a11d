import type { RequestOptions } from './atoll.ts'
import { Attached, type Taken } from './attached.ts'
import { bytesOf } from './process.ts'
import type { SocketEnd } from './socket.ts'

export interface TerminalSize {
  cols: number
  rows: number
}

/**
 * A terminal in a sandbox. `exited` is the exit code of its shell, undefined where the server does not report it.
 *
 * ```js
 * const terminal = await sandbox.terminal({ cols: 80, rows: 24 })
 * await terminal.write('ls\n')
 * for await (const bytes of terminal) …
 * ```
 */
export class Terminal extends Attached<Uint8Array, number | undefined> {
  /** Types. Resolves when the connection can take more. */
  async write(data: string | Uint8Array): Promise<void> {
    const bytes = bytesOf(data)
    if (bytes.length > 0) await this.send(bytes)
  }

  async resize(size: TerminalSize, options: RequestOptions = {}): Promise<void> {
    await this.client.json('POST', `${this.path}/resize`, { json: size, repeat: 'always', ...options })
  }

  /** Ends the terminal with its processes. */
  async kill(options: RequestOptions = {}): Promise<void> {
    await this.client.json('DELETE', this.path, options)
  }

  protected override take(data: Uint8Array): Taken<Uint8Array, number | undefined> {
    return { item: data, bytes: data.length }
  }

  protected override exitOf({ code, reason }: SocketEnd): { exit: number | undefined } | undefined {
    if (code !== 1000) return undefined
    const told = /^exit (\d+)$/.exec(reason)?.[1]
    return { exit: told === undefined ? undefined : Number(told) }
  }
}
