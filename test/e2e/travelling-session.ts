import assert from 'node:assert/strict'
import { isTurnComplete, type StreamedEvent, readEvents } from './event-stream.ts'
import { sh } from './sandbox-calls.ts'
import type { AtollServer } from './server.ts'
import {
  assertNumbered,
  createSession,
  getSession,
  isToolCall,
  sendMessage,
  type Session,
  sessionPage,
} from './session-client.ts'

export interface Rewound {
  session: Session
  restoredPrompt: string | null
  undoCheckpointId: string
  processes: string
}

export interface TimelineTurn {
  messageId: string
  checkpoint: { id: string; kind: string } | null
  forks: { id: string }[]
}

export interface Answer<Body> {
  status: number
  body: Body
  isReplayed: boolean
}

/** Where a session stands: its turns in force, and how often its page was asked. */
export interface Standing {
  turns: readonly number[]
  asked: number
}

/** Serves the text of a file, and counts in its memory how often it was asked. */
const program = `let n=0;require("http").createServer((q,s)=>s.end(require("fs").readFileSync("page.txt","utf8").trim()+" asked "+(++n))).listen(3000)`
const ask = 'for i in $(seq 100); do curl -sf localhost:3000 && break; sleep 0.05; done'
const start = `setsid node -e '${program}' >/dev/null 2>&1 </dev/null & ${ask}`

export const isSaved = ({ data }: StreamedEvent) => data.type === 'checkpoint_created'
export const isRewound = ({ data }: StreamedEvent) => data.type === 'rewound'
/** The agent runs the command of a turn. */
export const isRun = (event: StreamedEvent) => isToolCall(event) && JSON.stringify(event.data).includes('ran.txt')

/** The prompt of a turn that asks the page once. */
export function promptOf(turn: number): string {
  return `run: echo page ${turn} >page.txt; echo ${turn} >>ran.txt; ${turn === 1 ? start : ask}`
}

/** A session that is made to go back and forth: its page tells the turn, and a file which turns have run. */
export class TravellingSession {
  readonly server: AtollServer
  readonly session: Session

  constructor(server: AtollServer, session: Session) {
    this.server = server
    this.session = session
  }

  /** One with so many turns, each with its checkpoint. */
  static async begin(server: AtollServer, turns: number, more: Record<string, unknown> = {}) {
    const one = new TravellingSession(server, await createSession(server, promptOf(1), more))
    const [first] = await one.messages()
    await one.saved(first)
    for (let turn = 2; turn <= turns; turn += 1) await one.turn(turn)
    return one
  }

  get id(): string {
    return this.session.id
  }

  get path(): string {
    return `/v1/sessions/${this.id}`
  }

  /** Runs a turn, and waits for its checkpoint or for why it has none, which it returns. */
  async turn(turn: number): Promise<StreamedEvent | undefined> {
    return await this.saved(await this.send(promptOf(turn)))
  }

  /** Sends a message; returns its id. */
  async send(message: string): Promise<string | undefined> {
    const { messages } = await sendMessage(this.server, this.id, message)
    return messages.findLast(({ role }) => role === 'user')?.id
  }

  /** The event that tells of the checkpoint of a message's turn, or why it has none. */
  async saved(messageId: string | undefined): Promise<StreamedEvent | undefined> {
    const events = await readEvents(this.server, this.id, ({ data }, all) => {
      if (data.type === 'checkpoint_created') return data['message_id'] === messageId
      return data['code'] === 'checkpoint_failed' && all.findLast(isTurnComplete)?.data['message_id'] === messageId
    })
    return events.at(-1)
  }

  /** Reads the stream from its begin until so many of its events are of this kind. */
  async events(isOne: (event: StreamedEvent) => boolean, count: number): Promise<StreamedEvent[]> {
    const events = await readEvents(this.server, this.id, (_event, all) => all.filter(isOne).length === count)
    assertNumbered(events)
    return events
  }

  /** Ids of the messages in force, oldest first. */
  async messages(): Promise<string[]> {
    const { messages } = await getSession(this.server, this.id)
    return messages.filter(({ role }) => role === 'user').map(({ id }) => id)
  }

  async timeline(branch = 'in_force'): Promise<{ turns: TimelineTurn[]; undoCheckpointId: string | null }> {
    const query = branch === 'all' ? '&branch=all' : ''
    return (await this.server.json('GET', `${this.path}/timeline?limit=100${query}`)) as never
  }

  /** Sends a request about the session. */
  async post<Body = Rewound>(path: string, body: object, key?: string): Promise<Answer<Body>> {
    const headers = {
      'Content-Type': 'application/json',
      ...(key === undefined ? {} : { 'Idempotency-Key': key.replaceAll(' ', '-') }),
    }
    const request = { method: 'POST', headers, body: JSON.stringify({ user_id: 'ada', ...body }) }
    const answer = await this.server.fetch(`${this.path}/${path}`, request)
    const isReplayed = answer.headers.get('idempotent-replayed') === 'true'
    return { status: answer.status, body: (await answer.json()) as Body, isReplayed }
  }

  /** A rewind that must succeed. */
  async rewind(to: object, key?: string): Promise<Rewound> {
    const { status, body } = await this.post('rewind', { to }, key)
    assert.equal(status, 200, JSON.stringify(body))
    return body
  }

  async until(activity: string): Promise<void> {
    while ((await getSession(this.server, this.id)).activity !== activity)
      await new Promise((resolve) => setTimeout(resolve, 20))
  }

  /** Asserts that page, counter, files, messages and timeline are those of one state. Asks the page once: returns the state after that. */
  async assertStands({ turns, asked }: Standing, what = ''): Promise<Standing> {
    const { session, server } = this
    const found = {
      page: await sessionPage(server, session),
      ran: await sh(server, session.sandboxId, 'xargs </workspace/app/ran.txt'),
      messages: (await getSession(server, this.id)).messages
        .filter(({ role, state }) => role === 'user' && state !== 'cancelled')
        .map(({ content }) => Number(/page (\d+)/.exec(content)?.[1])),
    }
    const wanted = { page: `page ${turns.at(-1)} asked ${asked + 1}`, ran: turns.join(' '), messages: turns }
    assert.deepEqual(found, wanted, what)
    return { turns, asked: asked + 1 }
  }
}
