import { Atoll, type Session, type TurnInfo } from 'atoll-sdk'
import { serverNow } from '../../../lib/clock.ts'

/** Another browser may look at it for as long. */
const foreignAgeMs = 60 * 60_000
const prefix = 'peek-'
const browserStored = 'atoll.browser'

// What is sent while the page is left arrives all the same.
const leaving = new Atoll({
  url: location.origin,
  fetch: async (input, init) => await fetch(input, { ...init, keepalive: true }),
})

export type PeekState =
  | { step: 'forking' }
  | { step: 'made'; fork: Session }
  | { step: 'failed'; error: unknown }
  | { step: 'ended' }

/**
 * A throw-away fork that shows a session as it was:
 *
 *     forking ──► made ──► ended
 *        │          └── `end`: the panel closes, or the page is left
 *        └──► failed
 *
 * One that is left over, since the page was left before its fork was made or the browser has died, is known by its name: a page that opens the session
 * ends it (`endLeftPeeks`). A lock of the browser says that a page still shows it.
 */
export class Peek {
  readonly #name = `${prefix}${browserId()}-${randomPart()}`
  readonly #listeners = new Set<() => void>()
  readonly #released = Promise.withResolvers<void>()
  #state: PeekState = { step: 'forking' }

  constructor(session: Session, messageId: string) {
    addEventListener('pagehide', this.end)
    void this.#run(session, messageId)
  }

  get state(): PeekState {
    return this.#state
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** A repeat is harmless. Of a fork that is being made it ends what comes of it. */
  readonly end = (): void => {
    removeEventListener('pagehide', this.end)
    const { step } = this.#state
    const id = this.#state.step === 'made' ? this.#state.fork.id : undefined
    if (step === 'forking' || step === 'made') this.#set({ step: 'ended' })
    if (id !== undefined) void endSession(id)
    this.#released.resolve()
  }

  async #run(session: Session, messageId: string): Promise<void> {
    void navigator.locks?.request(this.#name, () => this.#released.promise)
    try {
      const fork = await session.fork({ name: this.#name, at: { messageId } })
      if (this.#state.step === 'forking') this.#set({ step: 'made', fork })
      else await endSession(fork.id)
    } catch (error) {
      if (this.#state.step === 'forking') this.#set({ step: 'failed', error })
      this.#released.resolve()
    }
  }

  #set(state: PeekState): void {
    this.#state = state
    for (const listener of this.#listeners) listener()
  }
}

/** Whether a session of this name is such a fork, and so of no interest to a list. */
export function isPeek(name: string | undefined): boolean {
  return name?.startsWith(prefix) === true
}

/** Ends those of these forks that nobody looks at any more: of this browser at once, of others after an hour. */
export async function endLeftPeeks(forks: TurnInfo['forks']): Promise<void> {
  const running = forks.filter(({ name, status }) => isPeek(name) && status === 'running')
  if (running.length === 0) return
  // Absent at an address without TLS that is not this machine: then nobody knows, and only age counts.
  const locks = await navigator.locks?.query()
  const held = new Set([...(locks?.held ?? []), ...(locks?.pending ?? [])].map(({ name }) => name))
  for (const { id, name = '', createdAt } of running) {
    const isOwn = locks !== undefined && name.startsWith(`${prefix}${browserId()}-`)
    if (held.has(name) || (!isOwn && serverNow() - Date.parse(createdAt) < foreignAgeMs)) continue
    await endSession(id)
  }
}

/** A failure is left to the page that opens the session next. */
async function endSession(id: string): Promise<void> {
  await leaving.json('DELETE', `/v1/sessions/${id}`).catch(() => undefined)
}

function browserId(): string {
  const known = localStorage.getItem(browserStored)
  if (known !== null && /^[0-9a-f]{8}$/.test(known)) return known
  const made = randomPart()
  localStorage.setItem(browserStored, made)
  return made
}

function randomPart(): string {
  return [...crypto.getRandomValues(new Uint8Array(4))].map((byte) => byte.toString(16).padStart(2, '0')).join('')
}
