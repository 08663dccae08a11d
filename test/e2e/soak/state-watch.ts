import { setTimeout as sleep } from 'node:timers/promises'
import { call } from './calls.ts'
import type { World } from './client.ts'

const everyMs = 250

interface Listed {
  sandboxID: string
  status: string
  reason?: string
}

/** The states that may be seen at any later time. */
const after: Record<string, readonly string[]> = {
  creating: ['creating', 'running', 'hibernated', 'error', 'stopped'],
  running: ['running', 'hibernated', 'error', 'stopped'],
  hibernated: ['running', 'hibernated', 'error', 'stopped'],
  error: ['error', 'stopped'],
  stopped: ['stopped'],
}

/** Polls all sandboxes: their transitions are legal, and none is in `error` without a reason. */
export async function watchStates(world: World): Promise<void> {
  const seen = new Map<string, string>()
  while (!world.over.aborted) {
    const known = world.sandboxes.filter((sandbox) => sandbox.deletion === 'none')
    const wasGone = [...seen].filter(([, status]) => status === 'stopped').map(([id]) => id)
    const answer = await call(world, undefined, 'GET', '/api/sandboxes')
    if (answer?.status === 200) {
      const listed = new Map((answer.body as Listed[]).map((each) => [each.sandboxID, each]))
      for (const { sandboxID, status, reason } of listed.values()) {
        const before = seen.get(sandboxID) ?? 'creating'
        const sandbox = world.sandboxes.find(({ id }) => id === sandboxID)
        // A session repeats the creation of its sandbox, under the same id, when the server ended in the middle of it.
        const isRepeated = sandbox === undefined && before === 'error'
        const isLegal = after[isRepeated ? 'creating' : before]?.includes(status) === true
        if (!isLegal || wasGone.includes(sandboxID)) {
          world.violated(`${sandboxID} moved from ${before} to ${status}`, sandbox)
        }
        if (status === 'error' && reason === undefined)
          world.violated(`${sandboxID} is in error without a reason`, sandbox)
        if (status === 'error' && sandbox !== undefined && !sandbox.wasKilled && sandbox.deletion === 'none') {
          world.violated(`${sandboxID} is in error, and nobody killed it: ${reason}`, sandbox)
        }
        seen.set(sandboxID, status)
      }
      for (const sandbox of known) {
        if (!listed.has(sandbox.id) && sandbox.deletion === 'none')
          world.violated(`${sandbox.id} is not listed`, sandbox)
      }
      for (const id of seen.keys()) if (!listed.has(id)) seen.set(id, 'stopped')
    }
    await sleep(everyMs, undefined, { signal: world.over }).catch(() => {})
  }
}
