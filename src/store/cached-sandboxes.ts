import type { Preview, Sandbox, SandboxStore } from '../sandbox/index.ts'

const sandboxesMax = 10_000
const previewsMax = 10_000

/**
 * Caches the records that every operation and every preview request reads. Correct only while this process is the single writer of
 * sandboxes and previews; several servers would have to invalidate each other's entries.
 */
export function cachedSandboxStore(store: SandboxStore): SandboxStore {
  const sandboxes = new ReadCache<Sandbox>(sandboxesMax)
  const previews = new ReadCache<Preview | 'none'>(previewsMax)
  const portKey = (sandboxId: string, port: number) => `${sandboxId}:${port}`
  return {
    ...store,
    async sandbox(id, orgId) {
      const sandbox = await sandboxes.read(id, () => store.sandbox(id))
      return orgId === undefined || sandbox?.orgId === orgId ? sandbox : undefined
    },
    insertSandbox: (sandbox) => sandboxes.write(sandbox.id, () => store.insertSandbox(sandbox)),
    updateSandbox: (id, change, from, options) =>
      sandboxes.write(
        id,
        () => store.updateSandbox(id, change, from, options),
        (sandbox) => sandbox,
      ),
    async purgeSandboxes(ids) {
      const count = await store.purgeSandboxes(ids)
      if (count > 0) {
        sandboxes.clear()
        previews.clear()
      }
      return count
    },
    async preview(sandboxId, port) {
      const read = async () => (await store.preview(sandboxId, port)) ?? 'none'
      const preview = await previews.read(portKey(sandboxId, port), read)
      return preview === 'none' ? undefined : preview
    },
    putPreview: (declaration, url, creation) =>
      previews.write(portKey(declaration.sandboxId, declaration.port), () =>
        store.putPreview(declaration, url, creation),
      ),
    setSslStatus: (preview, sslStatus, from) =>
      previews.write(portKey(preview.sandboxId, preview.port), () => store.setSslStatus(preview, sslStatus, from)),
    async verifyPreview(preview, verifiedAt, holder) {
      const verify = () => store.verifyPreview(preview, verifiedAt, holder)
      const verifyKept = () => previews.write(portKey(preview.sandboxId, preview.port), verify)
      return holder === undefined
        ? await verifyKept()
        : await previews.write(portKey(holder.sandboxId, holder.port), verifyKept)
    },
    deletePreview: (sandboxId, port) =>
      previews.write(portKey(sandboxId, port), () => store.deletePreview(sandboxId, port)),
  }
}

/** A read or write under way. */
interface Pending {
  isWrite: boolean
  /** A write of the same key overlaps with it, so its value may not be the last one. */
  isStale: boolean
}

/** Values by key; the oldest entry is evicted first. The result of a read or write is kept unless a write of the same key overlaps with it. */
class ReadCache<Value> {
  readonly #values = new Map<string, Value>()
  readonly #pending = new Map<string, Set<Pending>>()
  readonly #max: number

  constructor(max: number) {
    this.#max = max
  }

  async read<Result extends Value | undefined>(key: string, load: () => Promise<Result>): Promise<Value | undefined> {
    return this.#values.get(key) ?? (await this.#tracked(key, false, load, (value) => value))
  }

  /** `valueOf` takes the written value from the result, if the result has it. */
  async write<Result>(
    key: string,
    work: () => Promise<Result>,
    valueOf: (result: Result) => Value | undefined = () => undefined,
  ): Promise<Result> {
    return await this.#tracked(key, true, work, valueOf)
  }

  clear(): void {
    for (const group of this.#pending.values()) for (const other of group) other.isStale = true
    this.#values.clear()
  }

  async #tracked<Result>(
    key: string,
    isWrite: boolean,
    work: () => Promise<Result>,
    valueOf: (result: Result) => Value | undefined,
  ): Promise<Result> {
    const group = this.#pending.get(key) ?? new Set<Pending>()
    this.#pending.set(key, group)
    const own: Pending = { isWrite, isStale: [...group].some((other) => other.isWrite) }
    if (isWrite) {
      this.#values.delete(key)
      for (const other of group) other.isStale = true
    }
    group.add(own)
    try {
      const result = await work()
      const value = valueOf(result)
      if (value !== undefined && !own.isStale) this.#keep(key, value)
      return result
    } finally {
      group.delete(own)
      if (group.size === 0) this.#pending.delete(key)
    }
  }

  #keep(key: string, value: Value): void {
    const [oldest] = this.#values.keys()
    if (this.#values.size >= this.#max && oldest !== undefined) this.#values.delete(oldest)
    this.#values.set(key, value)
  }
}
