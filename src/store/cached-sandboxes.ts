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
    updateSandbox: (id, change, from, note) => sandboxes.write(id, () => store.updateSandbox(id, change, from, note)),
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
    putPreview: (declaration, creation) =>
      previews.write(portKey(declaration.sandboxId, declaration.port), () => store.putPreview(declaration, creation)),
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

/**
 * Values by key; the oldest entry is evicted first. A value that was read during a write is not cached: writes are counted at their begin
 * and end, and a read caches its value only if the count has not changed.
 */
class ReadCache<Value> {
  readonly #values = new Map<string, Value>()
  readonly #max: number
  #writes = 0

  constructor(max: number) {
    this.#max = max
  }

  async read<Result extends Value | undefined>(key: string, load: () => Promise<Result>): Promise<Value | undefined> {
    const kept = this.#values.get(key)
    if (kept !== undefined) return kept
    const writesBefore = this.#writes
    const value = await load()
    if (value !== undefined && this.#writes === writesBefore) {
      const [oldest] = this.#values.keys()
      if (this.#values.size >= this.#max && oldest !== undefined) this.#values.delete(oldest)
      this.#values.set(key, value)
    }
    return value
  }

  async write<Result>(key: string, work: () => Promise<Result>): Promise<Result> {
    this.#forget(key)
    try {
      return await work()
    } finally {
      this.#forget(key)
    }
  }

  clear(): void {
    this.#writes += 1
    this.#values.clear()
  }

  #forget(key: string): void {
    this.#writes += 1
    this.#values.delete(key)
  }
}
