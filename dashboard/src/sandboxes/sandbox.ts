import { Sandbox, type SandboxInfo } from 'atoll-sdk'
import { client } from '../account/client.ts'

/** Of what is read about one sandbox: an event about it makes all of that stale. */
export function sandboxKey<Rest extends readonly unknown[]>(id: string, ...rest: Rest): ['sandbox', string, ...Rest] {
  return ['sandbox', id, ...rest]
}

/** Reads a sandbox by its id or name, without a use of it. Throws `NotFoundError`. */
export async function readSandbox(idOrName: string, signal?: AbortSignal): Promise<SandboxInfo> {
  return await client.json('GET', `/api/sandboxes/${encodeURIComponent(idOrName)}`, { signal })
}

export function sandboxOf(info: SandboxInfo): Sandbox {
  return new Sandbox(client, info)
}

/** What a person calls it. */
export function nameOf({ name, sandboxID }: Pick<SandboxInfo, 'name' | 'sandboxID'>): string {
  return name ?? sandboxID
}
