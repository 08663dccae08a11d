import type { MetricsSample } from 'atoll-sdk'
import { useEffect, useSyncExternalStore } from 'react'
import { client } from '../account/client.ts'

/** Rows pass by while a list is scrolled: what is in view is followed when it rests. */
const restMs = 400
const drawnEveryMs = 250
/** Samples of one sandbox, a quarter of an hour. */
const samplesMax = 60
/** One stream takes 200. Those that have left the view are followed on while there is room, so that scrolling back asks for nothing. */
const followedMax = 120

const none: readonly MetricsSample[] = []

/** What the sandboxes in view use, by one stream for all of them. Nothing is followed until `follow` is called. */
class UsageFollower {
  readonly #samples = new Map<string, readonly MetricsSample[]>()
  readonly #listeners = new Set<() => void>()
  #followed: readonly string[] = []
  #wanted: readonly string[] = []
  #stream: AbortController | undefined
  #rest: ReturnType<typeof setTimeout> | undefined
  #drawing: ReturnType<typeof setTimeout> | undefined

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Oldest first; the same array until there is another sample. */
  samplesOf(id: string): readonly MetricsSample[] {
    return this.#samples.get(id) ?? none
  }

  follow(ids: readonly string[]): void {
    this.#wanted = ids
    clearTimeout(this.#rest)
    this.#rest = setTimeout(() => this.#renew(), restMs)
  }

  close(): void {
    clearTimeout(this.#rest)
    this.#stream?.abort()
    this.#stream = undefined
    this.#followed = []
    this.#samples.clear()
  }

  #renew(): void {
    if (this.#stream !== undefined && this.#wanted.every((id) => this.#followed.includes(id))) return
    this.#followed = [...new Set([...this.#wanted, ...this.#followed])].slice(0, followedMax)
    for (const id of this.#samples.keys()) if (!this.#followed.includes(id)) this.#samples.delete(id)
    this.#stream?.abort()
    if (this.#followed.length === 0) return
    const stream = new AbortController()
    this.#stream = stream
    void this.#read(this.#followed, stream.signal)
  }

  async #read(ids: readonly string[], signal: AbortSignal): Promise<void> {
    try {
      for await (const sample of client.watchMetrics(ids, { signal })) this.#add(sample)
    } catch {
      // Without samples the list shows no graphs, which says all there is to say; the next rows that come into view try again.
      if (this.#stream?.signal === signal) this.#stream = undefined
    }
  }

  #add(sample: MetricsSample): void {
    const known = this.samplesOf(sample.sandboxId)
    if (sample.at <= (known.at(-1)?.at ?? '')) return
    this.#samples.set(sample.sandboxId, [...known.slice(1 - samplesMax), sample])
    if (this.#drawing !== undefined) return
    this.#drawing = setTimeout(() => {
      this.#drawing = undefined
      for (const listener of this.#listeners) listener()
    }, drawnEveryMs)
  }
}

const follower = new UsageFollower()

const follow = (ids: readonly string[]): void => follower.follow(ids)

/** Returns what follows the usage of sandboxes by their ids, in place of those before; it ends with the component. */
export function useFollowUsage(): (ids: readonly string[]) => void {
  useEffect(() => () => follower.close(), [])
  return follow
}

/** What the sandbox has used in the last quarter of an hour, where it is followed. */
export function useSamples(id: string): readonly MetricsSample[] {
  return useSyncExternalStore(follower.subscribe, () => follower.samplesOf(id))
}
