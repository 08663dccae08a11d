import {
  AtollError,
  ConnectionError,
  ForbiddenError,
  NotFoundError,
  type Sandbox,
  SandboxStoppedError,
  type Terminal,
  type TerminalSize,
} from 'atoll-sdk'
import { reasonOf } from '../../../ui/states.tsx'
import { isAnswer } from './guards.ts'
import { Inflow } from './inflow.ts'

/**
 * `connecting` → `attached` → `ended` (its program has), or `gone` (the sandbox, or its memory). A connection that breaks is `broken` until it is made
 * again. With the sandbox it falls `asleep`, and stays so until somebody wakes that: a connection would.
 */
export type ConnectionState =
  | { type: 'connecting' | 'attached' | 'waking' }
  | { type: 'broken'; reason: string }
  | { type: 'asleep'; reason?: string }
  | { type: 'ended'; exitCode: number }
  | { type: 'gone'; reason: string }

interface Screen {
  write: (bytes: Uint8Array) => Promise<void>
  drain: () => Promise<void>
  reset: () => void
  readonly size: TerminalSize
}

interface ConnectionOptions {
  sandbox: Sandbox
  terminalId: string
  /** It was started by this page a moment ago. */
  isNew: boolean
  screen: Screen
  onState: (state: ConnectionState) => void
  /** Output came faster than it is shown, and a part of it was passed over. */
  onSkip: () => void
}

const firstPauseMs = 300
const pauseMaxMs = 10_000
/** What the sandbox keeps of output comes at once; a pause says that it is over. */
const keptPauseMs = 150
/** A sandbox keeps 1 MiB of output. With this much or more some may have been dropped before, so places in it are not known. */
const keptBytesSure = 512 * 1024
const inputBytes = 64 * 1024
const earlyBytesMax = 4 * 1024
/** Of `unavailable` in `closed` of a terminal's connection. */
const sleepReason = /put to sleep/

/** The connection of a screen with a terminal in a sandbox. It goes on where it broke and never wakes a sandbox by itself. */
export class TerminalConnection {
  readonly #options: ConnectionOptions
  readonly #closed = new AbortController()
  readonly #inflow: Inflow
  #state: ConnectionState = { type: 'connecting' }
  #terminal: Terminal | undefined
  /** Bytes of output that were read. */
  #offset = 0
  /** Whether `offset` is the sandbox's count too. */
  #isExact = true
  /** Bytes of kept output that have come on this connection; undefined once what comes is new. */
  #keptBytes: number | undefined
  #keptTimer: ReturnType<typeof setTimeout> | undefined
  #sentSize: TerminalSize | undefined
  #isResizing = false
  /** Typed while it was being connected. */
  #early: Uint8Array[] = []
  #earlyBytes = 0
  #proceed: () => void = () => undefined

  constructor(options: ConnectionOptions) {
    this.#options = options
    this.#inflow = new Inflow(options.screen)
    void this.#run()
  }

  /** Types. What is typed while it is being connected waits for that; what is typed into a broken connection is lost. */
  type(input: string | Uint8Array): void {
    const isAttached = this.#isIn('attached')
    if (!isAttached && !this.#isIn('connecting') && !this.#isIn('waking')) return
    if (typeof input === 'string' && isAnswer(input) && (!isAttached || this.#keptBytes !== undefined)) return
    const bytes = typeof input === 'string' ? new TextEncoder().encode(input) : input
    if (isAttached) return this.#send(bytes)
    if (this.#earlyBytes + bytes.length > earlyBytesMax) return
    this.#earlyBytes += bytes.length
    this.#early.push(bytes)
  }

  #send(bytes: Uint8Array): void {
    for (let start = 0; start < bytes.length; start += inputBytes) {
      this.#terminal?.write(bytes.subarray(start, start + inputBytes)).catch(() => undefined)
    }
  }

  /** Tells the terminal the size of the screen. */
  resize(): void {
    if (!this.#isResizing) void this.#resize()
  }

  /** Wakes the sandbox, if it sleeps. */
  async wake(): Promise<void> {
    if (!this.#isIn('asleep')) return
    this.#set({ type: 'waking' })
    try {
      // It is asked for something: a key that may use terminals need not have the right to wake.
      await this.#options.sandbox.terminals({ signal: this.#closed.signal })
      this.#proceed()
    } catch (error) {
      if (this.#isIn('waking')) this.#set({ type: 'asleep', reason: reasonOf(error) })
    }
  }

  /** Tries again at once: the sandbox was woken, or the server is back. */
  check(): void {
    this.#proceed()
  }

  close(): void {
    this.#closed.abort()
    clearTimeout(this.#keptTimer)
    this.#inflow.clear()
    this.#proceed()
  }

  async #run(): Promise<void> {
    const { signal } = this.#closed
    const { isNew } = this.#options
    for (let failures = isNew ? -1 : 0; !signal.aborted; failures += 1) {
      try {
        // Attaching would wake it.
        const final = failures < 0 ? undefined : await this.#look(failures > 0)
        if (final?.type === 'asleep') {
          await this.#sleep()
          continue
        }
        if (final !== undefined) return this.#set(final)
        const exitCode = await this.#follow(() => (failures = 0))
        if (exitCode !== undefined) return this.#set({ type: 'ended', exitCode })
      } catch (error) {
        if (signal.aborted) return
        if (error instanceof NotFoundError || error instanceof SandboxStoppedError || error instanceof ForbiddenError)
          return this.#set({ type: 'gone', reason: reasonOf(error) })
        if (error instanceof AtollError && sleepReason.test(error.message)) {
          // It may be on its way to sleep still, so its state says nothing yet.
          await this.#sleep()
          failures = 0
          continue
        }
        this.#takeEarly()
        this.#set({ type: 'broken', reason: reasonOf(error) })
        await this.#pause(Math.min(pauseMaxMs, firstPauseMs * 2 ** Math.max(0, failures)))
      }
    }
  }

  /** What forbids to attach, if anything does. A browser is not told why a WebSocket is refused, so after a failure the terminal is looked for too. */
  async #look(hasFailed: boolean): Promise<ConnectionState | undefined> {
    const { sandbox, terminalId } = this.#options
    const { signal } = this.#closed
    const { status, reason = '' } = await sandbox.info({ signal })
    if (status === 'hibernated') return { type: 'asleep' }
    if (status === 'stopped') return { type: 'gone', reason: 'The sandbox has stopped.' }
    if (status === 'error') return { type: 'gone', reason: `The sandbox has failed: ${reason}` }
    if (!hasFailed) return undefined
    const isThere = (await sandbox.terminals({ signal })).some(({ sessionID }) => sessionID === terminalId)
    if (isThere) return undefined
    return { type: 'gone', reason: 'This terminal is no more: the sandbox was started anew, or somebody closed it.' }
  }

  /** Shows output until the program ends or the connection does. Returns the exit code, undefined where the sandbox is to be asked. */
  async #follow(onOpen: () => void): Promise<number | undefined> {
    const { sandbox, terminalId, isNew, screen, onSkip } = this.#options
    if (!this.#isIn('connecting')) this.#set({ type: 'connecting' })
    if (!this.#isExact) {
      screen.reset()
      this.#offset = 0
    }
    const { signal } = this.#closed
    const opened = () => {
      onOpen()
      this.#expectKept(isNew && this.#offset === 0)
      this.#set({ type: 'attached' })
      this.#sentSize = undefined
      this.resize()
      for (const bytes of this.#takeEarly()) this.#send(bytes)
    }
    const options = { offset: this.#offset, signal, reconnects: false, onOpen: opened }
    const terminal = sandbox.attachTerminal(terminalId, options)
    this.#terminal = terminal
    try {
      for await (const bytes of terminal) {
        this.#offset = terminal.offset
        this.#noteKept(bytes.length)
        if (this.#inflow.take(bytes)) continue
        onSkip()
        return await this.#skip()
      }
    } finally {
      // It would connect again to type.
      this.#terminal = undefined
    }
    await this.#inflow.drain()
    const exitCode = await terminal.exited
    if (exitCode === undefined) throw new ConnectionError('the connection ended without a reason')
    return exitCode
  }

  /** Passes over output. The sandbox keeps the newest, which is shown when the screen has caught up and somebody looks. */
  async #skip(): Promise<undefined> {
    this.#set({ type: 'connecting' })
    this.#terminal?.detach()
    this.#isExact = false
    this.#inflow.clear()
    await this.#options.screen.drain()
    await untilSeen(this.#closed.signal)
  }

  /** `isFresh`: nothing was kept, for a program that has just been started. */
  #expectKept(isFresh: boolean): void {
    clearTimeout(this.#keptTimer)
    this.#keptBytes = isFresh ? undefined : 0
    this.#noteKept(0)
  }

  #noteKept(bytes: number): void {
    if (this.#keptBytes === undefined) return
    this.#keptBytes += bytes
    clearTimeout(this.#keptTimer)
    this.#keptTimer = setTimeout(() => void this.#endKept(), keptPauseMs)
  }

  async #endKept(): Promise<void> {
    await this.#inflow.drain()
    await this.#options.screen.drain()
    this.#isExact = (this.#keptBytes ?? 0) < keptBytesSure
    this.#keptBytes = undefined
  }

  #takeEarly(): Uint8Array[] {
    const early = this.#early
    this.#early = []
    this.#earlyBytes = 0
    return early
  }

  async #resize(): Promise<void> {
    const { screen } = this.#options
    this.#isResizing = true
    try {
      while (this.#isIn('attached') && !isSame(this.#sentSize, screen.size)) {
        this.#sentSize = screen.size
        await this.#terminal?.resize(screen.size, { signal: this.#closed.signal })
      }
    } catch {
      // The connection tells what is wrong, and a new one sends the size.
    } finally {
      this.#isResizing = false
    }
  }

  async #sleep(): Promise<void> {
    this.#set({ type: 'asleep' })
    await new Promise<void>((resolve) => {
      this.#proceed = resolve
    })
  }

  async #pause(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.#proceed = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  #isIn(type: ConnectionState['type']): boolean {
    return this.#state.type === type
  }

  #set(state: ConnectionState): void {
    this.#state = state
    if (!this.#closed.signal.aborted) this.#options.onState(state)
  }
}

function isSame(one: TerminalSize | undefined, other: TerminalSize): boolean {
  return one?.cols === other.cols && one.rows === other.rows
}

async function untilSeen(signal: AbortSignal): Promise<void> {
  if (!document.hidden) return
  await new Promise<void>((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return
      document.removeEventListener('visibilitychange', look)
      resolve()
    }
    document.addEventListener('visibilitychange', look)
    signal.addEventListener('abort', look, { once: true })
  })
}
