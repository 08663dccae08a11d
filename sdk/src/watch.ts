import type { Atoll, Call, RequestOptions } from './atoll.ts'
import { AtollError, ConnectionError } from './errors.ts'
import { eventsOf } from './events.ts'
import { pause, pauseMs } from './retry.ts'
import type { FileChange, SandboxInfo } from './types.ts'

/** Failures in a row after which the error is thrown. A server that restarts takes seconds. */
const failuresMax = 10
/** How often a sandbox that hibernates is looked at. That does not wake it. */
const asleepMs = 2_000
/** A sandbox that was not seen asleep after so long has not hibernated after all. */
const fallingAsleepMs = 60_000

/** `Files.watch`. `sandboxPath` is the path of the sandbox in the API, `query` that of the watch. */
export async function* changesOf(
  client: Atoll,
  sandboxPath: string,
  { query, onOpen }: { query: NonNullable<Call['query']>; onOpen: (() => void) | undefined },
  options: RequestOptions,
): AsyncGenerator<FileChange> {
  const { signal } = options
  for (let failures = 0, isFirst = true; ;) {
    try {
      const { startedAt } = await client.json<SandboxInfo>('GET', sandboxPath, options)
      const headers = { Accept: 'text/event-stream' }
      const response = await client.open('GET', `${sandboxPath}/files/watch`, { ...options, query, headers })
      onOpen?.()
      if (!isFirst) yield { type: 'lost' }
      isFirst = false
      let end: FileChange['reason']
      for await (const { data } of eventsOf(response.body ?? new ReadableStream())) {
        if (data === '') continue
        failures = 0
        const change = JSON.parse(data) as FileChange
        end = change.reason
        if (end !== 'hibernated') yield change
        if (end === 'hibernated') break
      }
      if (end === 'hibernated') await untilAwake(client, sandboxPath, startedAt, options)
      else if (end !== undefined) return
      // A stream that ends without a reason is that of a server that stops.
      else throw new ConnectionError('the stream ended')
    } catch (error) {
      signal?.throwIfAborted()
      failures += 1
      const asOurs = error instanceof AtollError ? error : new ConnectionError('the stream broke', { cause: error })
      const waitMs = failures <= failuresMax && !isFirst ? pauseMs(asOurs, 'always', failures) : undefined
      if (waitMs === undefined) throw asOurs
      await pause(waitMs, signal)
    }
  }
}

/** A new watch would wake the sandbox. The one before ends when the hibernation begins: until it is asleep it runs, as it was started at `startedAt`. */
async function untilAwake(
  client: Atoll,
  sandboxPath: string,
  startedAt: string,
  options: RequestOptions,
): Promise<void> {
  for (const until = Date.now() + fallingAsleepMs; ;) {
    const info = await client.json<SandboxInfo>('GET', sandboxPath, options)
    const isFallingAsleep = info.startedAt === startedAt && Date.now() < until
    if (info.status !== 'hibernated' && !(info.status === 'running' && isFallingAsleep)) return
    await pause(asleepMs, options.signal)
  }
}
