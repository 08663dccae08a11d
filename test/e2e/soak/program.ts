import { type Outcome, type Range, type Ranges, copyRanges } from './file-ranges.ts'
import { Intervals } from './intervals.ts'

/** What the program says of itself. */
export interface Said {
  instance: string
  count: number
  hostname: string
}

/** Which instances may hold the port, and how far each may have counted. */
export interface ProgramState {
  possible: Ranges
  mayBeGone: boolean
}

export const programPort = 8080

/** Counts its requests in memory, and says which instance it is and where it runs. */
const source = `
import socket, sys, threading
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", ${programPort}))
listener.listen(64)
lock = threading.Lock()
count = 0
def serve(connection):
    global count
    try:
        connection.settimeout(20)
        if connection.recv(65536):
            with lock:
                count += 1
                body = ("%s %d %s" % (sys.argv[1], count, socket.gethostname())).encode()
            connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n" % len(body) + body)
    except OSError:
        pass
    finally:
        connection.close()
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
`

/** As an exec session, which keeps its sandbox from idling; or `detached` from the command that starts it, which does not. */
export function programCommand(instance: string, how: 'session' | 'detached'): { cmd: string; args: string[] } {
  if (how === 'session') return { cmd: 'python3', args: ['-c', source, instance] }
  const detach = 'exec setsid -f python3 -c "$0" "$1" < /dev/null > /dev/null 2>&1'
  return { cmd: 'sh', args: ['-c', detach, source, instance] }
}

export function parseSaid(text: string): Said | undefined {
  const [, instance, count, hostname] = /(\S+) (\d+) (\S+)$/.exec(text.trim()) ?? []
  if (instance === undefined || hostname === undefined) return undefined
  return { instance, count: Number(count), hostname }
}

/**
 * The program of one sandbox that counts in memory. `ends` are the intervals in which something may end it or put
 * another in its place: a reboot, a restore, a kill. Outside of them it neither goes nor counts back.
 */
export class Program {
  readonly ends = new Intervals()
  readonly #id: string
  readonly #starts = new Intervals()
  readonly #asks = new Intervals()
  /** States that captures under way may have seen. */
  readonly #captures = new Set<{ possible: Map<string, Range>; mayBeGone: boolean }>()
  #possible: Map<string, Range>
  #mayBeGone: boolean
  readonly #known: Set<string>

  constructor(id: string, { possible, mayBeGone }: ProgramState) {
    this.#id = id
    this.#possible = copyRanges(possible)
    this.#mayBeGone = mayBeGone
    this.#known = new Set(possible.keys())
  }

  get mayBeGone(): boolean {
    return this.#mayBeGone
  }

  /** Before a new one is started. The result is called when the start has ended. */
  start(instance: string): () => void {
    const end = this.#starts.begin()
    this.#allow(new Map([[instance, { lo: 0, hi: 0 }]]))
    return () => void end()
  }

  /** Before it is asked. The result is called with what it said and says what is wrong with it. */
  ask(): { said: (said: Said) => string | undefined; nothingListens: () => string | undefined; ended: () => void } {
    const ended = this.#asks.begin()
    const wasEnded = this.ends.watch()
    const before = copyRanges(this.#possible)
    const couldBeGone = this.#mayBeGone
    // A preview request is repeated when a checkpoint has cut it off.
    for (const { possible } of [this.#state(), ...this.#captures]) for (const range of possible.values()) range.hi += 2
    return {
      ended,
      said: ({ instance, count, hostname }) => {
        if (hostname !== this.#id) return `the program of ${this.#id} says that it runs in ${hostname}`
        if (!this.#known.has(instance)) return `${instance} answers, which was never started here`
        if (wasEnded()) return undefined
        const least = before.get(instance)
        const range = this.#possible.get(instance)
        if (least === undefined || range === undefined) return `${instance} answers, which has ended before`
        if (count <= least.lo) return `${instance} says ${count}, but it had counted to ${least.lo} before`
        if (count > range.hi) return `${instance} says ${count}, but was asked at most ${range.hi} times`
        range.lo = Math.max(range.lo, count)
        this.#possible = new Map([[instance, range]])
        this.#mayBeGone = false
        return undefined
      },
      nothingListens: () => {
        if (wasEnded() || couldBeGone) return undefined
        return `nothing listens, but ${[...before.keys()].join(' or ')} must be there`
      },
    }
  }

  /** Before something that ends it. The result is called when that has ended. */
  end(saved: ProgramState): (outcome: Outcome) => void {
    const end = this.ends.begin()
    const wasStarted = this.#starts.watch()
    const wasAsked = this.#asks.watch()
    this.#allow(saved.possible)
    this.#mayBeGone = true
    for (const capture of this.#captures) capture.mayBeGone = true
    return (outcome) => {
      if (end() || outcome !== 'done' || wasStarted()) return
      const possible = copyRanges(saved.possible)
      if (wasAsked()) for (const [instance, range] of possible) range.hi = this.#possible.get(instance)?.hi ?? range.hi
      this.#possible = possible
      this.#mayBeGone = saved.mayBeGone
    }
  }

  /** Before a checkpoint. The result is called when it is ready and says what is in it. */
  capture(): () => ProgramState {
    const capture = { ...this.#state(), possible: copyRanges(this.#possible) }
    this.#captures.add(capture)
    return () => {
      this.#captures.delete(capture)
      return capture
    }
  }

  #allow(added: Ranges): void {
    for (const { possible } of [this.#state(), ...this.#captures]) {
      for (const [instance, { lo, hi }] of added) {
        const range = possible.get(instance) ?? { lo, hi }
        possible.set(instance, { lo: Math.min(range.lo, lo), hi: Math.max(range.hi, hi) })
      }
    }
    for (const instance of added.keys()) this.#known.add(instance)
  }

  #state() {
    return { possible: this.#possible, mayBeGone: this.#mayBeGone }
  }
}

/** What a sandbox has that was started from a disk alone. */
export const noProgram: ProgramState = { possible: new Map(), mayBeGone: true }
