/** Clients that attach to a process over a WebSocket, leave, and come back. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { IncomingMessage } from 'node:http'
import { WebSocket } from 'ws'
import type { SandboxModel } from './sandbox.ts'
import { Excuses } from './calls.ts'
import type { Client } from './client.ts'
import { hibernate } from './lifecycle.ts'

const showMsMax = 90_000
const frame = { stdin: 0, stdout: 1 }

/** A line that was echoed is there for whoever attaches later, also after a sleep. */
export async function useExec(client: Client, sandbox: SandboxModel): Promise<void> {
  const wasEnded = sandbox.program.ends.watch()
  const answer = await client.ask(sandbox, 'POST', '/exec', { body: { cmd: 'cat' } })
  if (answer?.status !== 201) return
  const { sessionID } = answer.body as { sessionID: string }
  const lines: string[] = []
  for (let visit = 0; visit < 2; visit += 1) {
    if (visit === 1 && client.random.next() < 0.5) await hibernate(client, sandbox)
    const attachment = await Attachment.open(client, sandbox, `exec/${sessionID}`, wasEnded)
    if (attachment === undefined) return
    for (const line of lines) await attachment.shows(`${line}\n`)
    const line = `line-${client.world.number()}`
    attachment.send(Buffer.concat([Buffer.of(frame.stdin), Buffer.from(`${line}\n`)]))
    if (await attachment.shows(`${line}\n`)) lines.push(line)
    await attachment.leave()
    await client.rest()
  }
  await client.ask(sandbox, 'POST', `/exec/${sessionID}/kill`, {
    body: {},
    allow: () => (wasEnded() ? ['not_found'] : []),
  })
}

export async function usePty(client: Client, sandbox: SandboxModel): Promise<void> {
  const wasEnded = sandbox.program.ends.watch()
  const answer = await client.ask(sandbox, 'POST', '/pty', { body: { cols: 80, rows: 24 } })
  if (answer?.status !== 201) return
  const { sessionID } = answer.body as { sessionID: string }
  const path = `/pty/${sessionID}`
  const attachment = await Attachment.open(client, sandbox, path.slice(1), wasEnded)
  if (attachment !== undefined) {
    const number = client.world.number()
    attachment.send(Buffer.from(`echo "sum $((${number}+1))"\n`))
    await attachment.shows(`sum ${number + 1}`)
    await client.ask(sandbox, 'POST', `${path}/resize`, {
      body: { cols: 100, rows: 30 },
      allow: () => (wasEnded() ? ['not_found'] : []),
    })
    await attachment.leave()
  }
  await client.ask(sandbox, 'DELETE', path, { allow: ['not_found'] })
}

class Attachment {
  readonly #socket: WebSocket
  readonly #excuses: Excuses
  readonly #wasEnded: () => boolean
  readonly #name: string
  #shown = ''
  #closed: string | undefined

  private constructor(client: Client, sandbox: SandboxModel, name: string, wasEnded: () => boolean) {
    this.#name = name
    this.#wasEnded = wasEnded
    this.#excuses = new Excuses(client.world, sandbox)
    const { port, key } = client.world.server
    this.#socket = new WebSocket(`ws://127.0.0.1:${port}/api/sandboxes/${sandbox.id}/${name}?api_key=${key}`)
    this.#socket.on('message', (data: Buffer) => this.#take(data))
    this.#socket.on('close', (code, reason) => (this.#closed ??= `${code} ${reason.toString()}`))
    this.#socket.on('error', (error) => (this.#closed ??= String(error)))
  }

  /** Undefined when it is refused, or broken off. */
  static async open(
    client: Client,
    sandbox: SandboxModel,
    name: string,
    wasEnded: () => boolean,
  ): Promise<Attachment | undefined> {
    const attachment = new Attachment(client, sandbox, name, wasEnded)
    const { promise, resolve } = Promise.withResolvers<boolean>()
    attachment.#socket.once('open', () => resolve(true))
    attachment.#socket.once('close', () => resolve(false))
    attachment.#socket.once('unexpected-response', (_request, response: IncomingMessage) => {
      void attachment.#refused(response).then(() => resolve(false))
    })
    const timer = setTimeout(() => resolve(false), showMsMax)
    const isOpen = await promise
    clearTimeout(timer)
    if (isOpen) return attachment
    attachment.#socket.terminate()
    await attachment.#assertExcused('was not let in')
    return undefined
  }

  send(data: Buffer): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(data)
  }

  /** Waits for a text; false when the connection was cut off. */
  async shows(text: string): Promise<boolean> {
    const deadline = Date.now() + showMsMax
    while (!this.#shown.includes(text)) {
      if (this.#closed !== undefined || Date.now() > deadline) {
        await this.#assertExcused(`did not show ${JSON.stringify(text)}`)
        return false
      }
      await sleep(10)
    }
    return true
  }

  async leave(): Promise<void> {
    this.#socket.close()
    const deadline = Date.now() + showMsMax
    while (this.#closed === undefined && Date.now() < deadline) await sleep(10)
    if (this.#closed === undefined) await this.#assertExcused('did not close')
    this.#socket.terminate()
  }

  #take(data: Buffer): void {
    if (this.#name.startsWith('pty/')) this.#shown += data.toString()
    else if (data[0] === frame.stdout) this.#shown += data.subarray(1).toString()
  }

  async #refused(response: IncomingMessage): Promise<void> {
    const text = Buffer.concat(await response.toArray()).toString()
    this.#closed = `${response.statusCode} ${text}`
  }

  async #assertExcused(what: string): Promise<void> {
    if (this.#excuses.forCut || this.#wasEnded()) return
    const shown = JSON.stringify(this.#shown.slice(-300))
    await this.#excuses.report(`${this.#name} ${what}; closed: ${this.#closed}; shown: ${shown}`)
  }
}
