import type { TxtResolver } from '../../src/sandbox/index.ts'

/** DNS in memory. */
export class FakeTxtRecords implements TxtResolver {
  /** By name, in lower case. */
  readonly texts = new Map<string, string[]>()
  /** Names that were looked up, and how many of these lookups have not ended. */
  readonly asked: string[] = []
  running = 0
  /** While it is set, lookups wait for it. */
  delay: Promise<void> | undefined
  /** While it is set, no name server answers. */
  isDown = false

  async resolveTxt(name: string, signal: AbortSignal): Promise<readonly string[]> {
    this.asked.push(name)
    this.running++
    try {
      const aborted = new Promise<never>((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true })
      })
      await Promise.race([this.delay, aborted])
      if (this.isDown) throw new Error('no name server answers')
      return this.texts.get(name) ?? []
    } finally {
      this.running--
    }
  }

  add({ name, value }: { name: string; value: string }): void {
    this.texts.set(name, [...(this.texts.get(name) ?? []), value])
  }

  remove({ name, value }: { name: string; value: string }): void {
    this.texts.set(
      name,
      (this.texts.get(name) ?? []).filter((text) => text !== value),
    )
  }
}
