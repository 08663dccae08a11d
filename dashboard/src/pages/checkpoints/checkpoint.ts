import { queryOptions, type QueryClient } from '@tanstack/react-query'
import type { ListedCheckpointInfo } from 'atoll-sdk'
import { client } from '../../account/client.ts'
import { serverNow } from '../../lib/clock.ts'

/** Reads a checkpoint with what makes use of it. Throws `NotFoundError`. */
export function checkpointQuery(id: string) {
  return queryOptions({
    queryKey: ['checkpoints', 'one', id],
    queryFn: ({ signal }) =>
      client.json<ListedCheckpointInfo>('GET', `/api/checkpoints/${encodeURIComponent(id)}`, { signal }),
  })
}

/** `null`: it is never deleted by itself. */
export async function setExpiry(id: string, expiresInSeconds: number | null): Promise<ListedCheckpointInfo> {
  const json = { expiresInSeconds }
  return await client.json('PATCH', `/api/checkpoints/${encodeURIComponent(id)}`, { json, repeat: 'always' })
}

/** Reads anew what shows checkpoints: the log has no event for an expiry that was set, and none for a checkpoint that is being made. */
export async function refreshCheckpoints(queries: QueryClient): Promise<void> {
  await Promise.all([
    queries.invalidateQueries({ queryKey: ['checkpoints'] }),
    queries.invalidateQueries({ queryKey: ['tree'] }),
  ])
}

/** A name that commands take, and that no other checkpoint of a sandbox has: `fork-2026-01-15-103000`. */
export function nameByTime(prefix: string): string {
  const time = new Date(serverNow()).toISOString().slice(0, 19)
  return `${prefix}-${time.replaceAll(':', '').replace('T', '-')}`
}

const deletesAtOnce = 4

/** Deletes one after the other, a few at a time. Throws one error that says how many stay, and why the first of them does. */
export async function deleteCheckpoints(ids: readonly string[]): Promise<void> {
  const left = [...ids]
  const faults: unknown[] = []
  const work = async () => {
    for (let id = left.shift(); id !== undefined; id = left.shift()) {
      await client.deleteCheckpoint(id).catch((error: unknown) => faults.push(error))
    }
  }
  await Promise.all(Array.from({ length: deletesAtOnce }, work))
  if (faults.length === 0) return
  if (ids.length === 1) throw faults[0]
  const [first] = faults
  const reason = first instanceof Error ? first.message : String(first)
  throw new Error(`${faults.length} of ${ids.length} stay. The first one: ${reason}`, { cause: first })
}
