import { setTimeout as sleep } from 'node:timers/promises'
import { readEvents, type StreamedEvent } from '../event-stream.ts'
import type { AtollServer } from '../server.ts'
import type { Session } from '../session-client.ts'
import { type Answer, callUntil, tryCall } from './calls.ts'
import { Follower } from './follower.ts'
import { Deadline } from './intervals.ts'
import type { Random } from './random.ts'

const actsMin = 4
const actsMax = 12
const pauseMsMax = 1500
const settleMsMax = 240_000
/** A turn of the demo model, at the end of which the agents of many sessions wait for two cores. */
const streamMsMax = 180_000
const weights = {
  quick: 8,
  slow: 5,
  page: 5,
  interrupt: 2,
  cancel: 1,
  checkpoint: 2,
  fullCheckpoint: 1,
  hibernate: 1,
  fork: 1,
}

/** A message as its sender knows it: `unknown` when the connection broke before the answer. */
export interface Said {
  word: string
  content: string
  outcome: 'accepted' | 'unknown'
  command: boolean
}

/** One session and what its user did: sends messages, interrupts, forks, restarts a lost sandbox. Never reads the database. */
export class User {
  readonly server: AtollServer
  readonly id: string
  readonly said: Said[] = []
  /** Sandboxes that the session has had; the last is the present one. */
  readonly sandboxIds: string[] = []
  interrupts = 0
  cancels = 0
  restarts = 0
  readonly #random: Random
  readonly #killing: AbortSignal
  #sessionId = ''
  #words = 0
  /** Sandboxes that were put to sleep and not woken since. */
  readonly #hibernated = new Set<string>()
  #follower: Follower | undefined
  #checkpointId: string | undefined

  /** `killing` aborts when nobody is killed any more. */
  constructor(server: AtollServer, id: string, random: Random, killing: AbortSignal) {
    this.server = server
    this.id = id
    this.#killing = killing
    this.#random = random
  }

  get sessionId(): string {
    return this.#sessionId
  }

  get follower(): Follower {
    if (!this.#follower) throw new Error('there is no session yet')
    return this.#follower
  }

  async begin(): Promise<void> {
    const first = this.#message('quick')
    for (;;) {
      const answer = await tryCall(this.server, 'POST', '/v1/sessions', { prompt: first.content, user_id: this.id })
      if (answer && answer.status !== 201 && answer.status !== 503) throw new Error(JSON.stringify(answer))
      const created = answer?.status === 201 ? (answer.body as Session) : (await this.sessions())[0]
      if (created) {
        this.#sessionId = created.id
        break
      }
      await sleep(100)
    }
    this.said.push({ ...first, outcome: 'accepted' })
    this.#follower = new Follower(this.server, this.#sessionId, this.#random)
    await this.session()
  }

  /** Acts for a while, or until `signal` aborts. */
  async act(signal: AbortSignal): Promise<void> {
    for (let left = this.#random.between(actsMin, actsMax); left > 0 && !signal.aborted; left -= 1) {
      await this.#actOnce(this.#random.weighed(weights))
      await sleep(this.#random.between(0, pauseMsMax))
    }
  }

  async session(): Promise<Session> {
    const session = await this.#get(this.#sessionId)
    if (this.sandboxIds.at(-1) !== session.sandboxId) this.sandboxIds.push(session.sandboxId)
    return session
  }

  /** The sessions of this user that have not ended, this one and its forks. */
  async sessions(): Promise<Session[]> {
    const { body } = await callUntil(this.server, [200], 'GET', `/v1/sessions?user_id=${this.id}`)
    return (body as { data: Session[] }).data.filter(({ status }) => status === 'running')
  }

  /** Waits until nothing is left to do, in the forks neither; a sandbox that was lost is replaced. Returns the idle session. */
  async settle(): Promise<Session> {
    for (const fork of await this.sessions()) if (fork.id !== this.#sessionId) await this.#settle(fork.id)
    return await this.#settle(this.#sessionId)
  }

  /** Deletes the session and all that came of it. */
  async end(): Promise<void> {
    for (const { id } of await this.sessions()) {
      await callUntil(this.server, [200], 'DELETE', `/v1/sessions/${id}?user_id=${this.id}`)
    }
    for (const sandboxId of this.sandboxIds) await this.#deleteCheckpoints(sandboxId)
    await this.follower.close()
  }

  /** Stops following, whatever it has seen. */
  async leave(): Promise<void> {
    await this.#follower?.close().catch(() => {})
  }

  /** The first events of the stream, as the client saw them come. More may follow: an idle agent is killed, too. */
  async followed(count: number): Promise<StreamedEvent[]> {
    await this.follower.reach(count, new Deadline(this.#killing, streamMsMax))
    return this.follower.events.slice(0, count)
  }

  /** The same, read anew. */
  async replayed(count: number): Promise<StreamedEvent[]> {
    const last = (event: StreamedEvent) => event.id >= count
    for (const deadline = new Deadline(this.#killing, streamMsMax); !deadline.isOver; await sleep(100)) {
      const events = await readEvents(this.server, this.#sessionId, last).catch(() => [])
      if (events.length > 0) return events
    }
    throw new Error(`the stream of ${this.#sessionId} cannot be read`)
  }

  async #actOnce(act: keyof typeof weights): Promise<void> {
    switch (act) {
      case 'quick':
      case 'slow':
      case 'page':
        return await this.#send(this.#message(act))
      case 'interrupt':
        this.interrupts += 1
        await tryCall(this.server, 'POST', `${this.#path()}/interrupt`, { user_id: this.id })
        return
      case 'cancel':
        return await this.#cancel()
      case 'checkpoint':
        return await this.#checkpoint('disk_only')
      case 'fullCheckpoint':
        return await this.#checkpoint('full')
      case 'hibernate':
        return await this.#hibernate()
      case 'fork':
        await tryCall(this.server, 'POST', `${this.#path()}/fork`, { user_id: this.id })
    }
  }

  async #hibernate(): Promise<void> {
    const { sandboxId } = await this.session()
    this.#hibernated.add(sandboxId)
    await tryCall(this.server, 'POST', `/api/sandboxes/${sandboxId}/hibernate`)
  }

  async #wake(sandboxId: string): Promise<void> {
    const answer = await tryCall(this.server, 'POST', `/api/sandboxes/${sandboxId}/wake`, {})
    // 404, 409, 410: it is gone by now, and the session says so.
    if (answer === undefined || ![200, 404, 409, 410].includes(answer.status)) this.#hibernated.add(sandboxId)
  }

  #message(kind: 'quick' | 'slow' | 'page'): Omit<Said, 'outcome'> {
    this.#words += 1
    const word = `${this.id}x${this.#words}`
    if (kind === 'page') return { word, content: `Add a section about ${word}`, command: false }
    // What it prints is not part of the command, so that an answer which repeats the command proves nothing.
    const command = `printf 'ran-%s\\n' ${word} | tee -a /workspace/commands.log`
    const pause = kind === 'slow' ? `sleep ${this.#random.between(5, 30) / 10}; ` : ''
    return { word, content: `run: ${pause}${command}`, command: true }
  }

  async #send(message: Omit<Said, 'outcome'>): Promise<void> {
    const session = await this.session()
    if (session.activity === 'failed') await this.#revive(session)
    const body = { message: message.content, user_id: this.id }
    this.#note(message, await tryCall(this.server, 'POST', `${this.#path()}/messages`, body))
  }

  async #cancel(): Promise<void> {
    const queued = (await this.session()).messages.findLast(({ state }) => state === 'queued')
    if (!queued) return
    this.cancels += 1
    await tryCall(this.server, 'DELETE', `${this.#path()}/messages/${queued.id}?user_id=${this.id}`)
  }

  async #checkpoint(kind: 'full' | 'disk_only'): Promise<void> {
    const { sandboxId } = await this.session()
    const path = `/api/sandboxes/${sandboxId}/checkpoints`
    const answer = await tryCall(this.server, 'POST', path, { name: `${this.id} ${this.said.length} ${kind}`, kind })
    if (answer?.status === 201) this.#checkpointId = (answer.body as { id: string }).id
  }

  async #settle(id: string): Promise<Session> {
    for (const deadline = new Deadline(this.#killing, settleMsMax); ; await sleep(200)) {
      const session = id === this.#sessionId ? await this.session() : await this.#get(id)
      const open = session.messages.some(({ state }) => state === 'queued' || state === 'started')
      if (session.activity === 'idle' && !open) return session
      if (session.activity === 'failed') await this.#revive(session)
      // Its user put it to sleep in the middle of a turn, and nobody else may wake it.
      if (this.#hibernated.delete(session.sandboxId)) await this.#wake(session.sandboxId)
      if (deadline.isOver) throw new Error(`the session does not settle: ${JSON.stringify(session)}`)
    }
  }

  /** What a user does about a session that says it has failed. */
  async #revive(session: Session): Promise<void> {
    const why = session.events.findLast(({ type }) => type === 'session_failed')
    if (!why) throw new Error(`the session does not say why it failed: ${JSON.stringify(session)}`)
    const mine = session.id === this.#sessionId
    const from = mine && this.#checkpointId !== undefined ? { checkpoint_id: this.#checkpointId } : {}
    const answer = await tryCall(this.server, 'POST', `/v1/sessions/${session.id}/restart`, {
      user_id: this.id,
      ...from,
    })
    if (answer === undefined || answer.status === 503) return
    if (answer.status === 200) {
      if (mine) this.restarts += 1
    } else if ('checkpoint_id' in from && (answer.status === 404 || answer.status === 409)) {
      // The checkpoint did not come to be: its server or its sandbox died over it.
      this.#checkpointId = undefined
    } else if (answer.status === 409) {
      // The sandbox is there: a message tries again what failed.
      await this.#again(session)
    } else {
      throw new Error(`a restart was answered ${JSON.stringify(answer)}`)
    }
  }

  async #again({ id }: Session): Promise<void> {
    const message = this.#message('quick')
    const body = { message: message.content, user_id: this.id }
    const answer = await tryCall(this.server, 'POST', `/v1/sessions/${id}/messages`, body)
    if (id === this.#sessionId) this.#note(message, answer)
  }

  #note(message: Omit<Said, 'outcome'>, answer: Answer | undefined): void {
    if (answer?.status === 200) this.said.push({ ...message, outcome: 'accepted' })
    // Lost on the way: it may have been taken all the same.
    else if (answer === undefined) this.said.push({ ...message, outcome: 'unknown' })
    // 409: the sandbox was lost since; 503: the server has just come up.
    else if (![409, 503].includes(answer.status)) throw new Error(`a message was answered ${JSON.stringify(answer)}`)
  }

  async #get(id: string): Promise<Session> {
    return (await callUntil(this.server, [200], 'GET', `/v1/sessions/${id}`)).body as Session
  }

  async #deleteCheckpoints(sandboxId: string): Promise<void> {
    const path = `/api/sandboxes/${sandboxId}/checkpoints`
    const list = await callUntil(this.server, [200, 404], 'GET', path)
    if (list.status === 404) return
    for (const { id } of list.body as { id: string }[]) {
      await callUntil(this.server, [204, 404], 'DELETE', `${path}/${id}`)
    }
  }

  #path(): string {
    return `/v1/sessions/${this.#sessionId}`
  }
}
