import type { BuildEvent, BuiltImage } from '../image.ts'

/** Someone who waits for a build. */
export interface Follower {
  /** Gets the newest events so far (`saidBytesMax`), then each new one. Must not throw. */
  onEvent?: (event: BuildEvent) => void
  /** Ends the wait. A build without requesters ends. */
  signal?: AbortSignal
}

type Work = (emit: (event: BuildEvent) => void, signal: AbortSignal) => Promise<BuiltImage>

interface BuildUnderWay {
  result: Promise<BuiltImage>
  end: AbortController
  /** Requests that want its result; watchers do not count. */
  requesters: number
  listeners: Set<(event: BuildEvent) => void>
  said: BuildEvent[]
  saidBytes: number
}

/** Bound of the events that are kept for followers who come later. */
const saidBytesMax = 1024 * 1024

/** Builds under way by key: one for all requests for the same content. A build ends with its last request. */
export class Builds {
  readonly #builds = new Map<string, BuildUnderWay>()
  readonly #removeFilesOf: (key: string) => Promise<void>

  /** `removeFiles` is called when a build has ended, before another of its key may begin. */
  constructor(removeFiles: (key: string) => Promise<void>) {
    this.#removeFilesOf = removeFiles
  }

  /** Joins the build of this key, or begins it with `work`. Throws the reason of an aborted signal. */
  async join(key: string, work: Work, follower: Follower): Promise<BuiltImage> {
    follower.signal?.throwIfAborted()
    for (let build = this.#builds.get(key); build?.end.signal.aborted; build = this.#builds.get(key)) {
      // All requesters of that build have left, and it still cleans up.
      await build.result.catch(() => undefined)
    }
    const build = this.#builds.get(key) ?? this.#begin(key, work)
    build.requesters += 1
    try {
      return await this.#wait(build, follower)
    } finally {
      build.requesters -= 1
      if (build.requesters === 0) {
        build.end.abort(follower.signal?.reason)
        await build.result.catch(() => undefined)
      }
    }
  }

  /** Follows the build of this key, if there is one, to its end. */
  async watch(key: string, follower: Follower): Promise<void> {
    const build = this.#builds.get(key)
    if (build !== undefined) await this.#wait(build, follower).catch(() => undefined)
  }

  async settled(): Promise<void> {
    await Promise.allSettled([...this.#builds.values()].map(({ result }) => result))
  }

  #begin(key: string, work: Work): BuildUnderWay {
    const build: BuildUnderWay = {
      result: Promise.resolve({ checkpointId: '' }),
      end: new AbortController(),
      requesters: 0,
      listeners: new Set(),
      said: [],
      saidBytes: 0,
    }
    this.#builds.set(key, build)
    build.result = this.#run(key, () => work((event) => say(build, event), build.end.signal))
    // All requesters may have left.
    build.result.catch(() => undefined)
    return build
  }

  async #run(key: string, work: () => Promise<BuiltImage>): Promise<BuiltImage> {
    try {
      return await work()
    } finally {
      await this.#removeFilesOf(key)
      this.#builds.delete(key)
    }
  }

  async #wait(build: BuildUnderWay, { onEvent, signal }: Follower): Promise<BuiltImage> {
    if (onEvent !== undefined) {
      for (const event of build.said) onEvent(event)
      build.listeners.add(onEvent)
    }
    const { promise: given, reject } = Promise.withResolvers<never>()
    const giveUp = () => reject(signal?.reason)
    signal?.addEventListener('abort', giveUp)
    try {
      return await Promise.race([build.result, given])
    } finally {
      signal?.removeEventListener('abort', giveUp)
      if (onEvent !== undefined) build.listeners.delete(onEvent)
    }
  }
}

function say(build: BuildUnderWay, event: BuildEvent): void {
  build.said.push(event)
  build.saidBytes += bytesOf(event)
  while (build.saidBytes > saidBytesMax) build.saidBytes -= bytesOf(build.said.shift() as BuildEvent)
  for (const listener of build.listeners) listener(event)
}

function bytesOf(event: BuildEvent): number {
  return 100 + (event.event === 'build_log' ? event.message.length : event.data.length)
}
