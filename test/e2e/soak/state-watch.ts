import { setTimeout as sleep } from 'node:timers/promises'
import { call } from './calls.ts'
import type { World } from './world.ts'

const everyMs = 250

interface Listed {
  sandboxID: string
  status: string
  reason?: string
}

/** What may be seen after a state was seen, at any later time. */
const after: Record<string, readonly string[]> = {
  creating: ['creating', 'running', 'hibernated', 'error', 'stopped'],
  running: ['running', 'hibernated', 'error', 'stopped'],
  hibernated: ['running', 'hibernated', 'error', 'stopped'],
  error: ['error', 'stopped'],
  stopped: ['stopped'],
}

/** Looks at all sandboxes all the time: they move along the allowed edges, and none is in `error` without a reason. */
export async function watchStates(world: World): Promise<void> {
  const seen = new Map<string, string>()
  while (!world.over.aborted) {
    const known = world.boxes.filter((box) => box.deletion === 'none')
    const wasGone = [...seen].filter(([, status]) => status === 'stopped').map(([id]) => id)
    const answer = await call(world, undefined, 'GET', '/api/sandboxes')
    if (answer?.status === 200) {
      const listed = new Map((answer.body as Listed[]).map((each) => [each.sandboxID, each]))
      for (const { sandboxID, status, reason } of listed.values()) {
        const before = seen.get(sandboxID) ?? 'creating'
        const box = world.boxes.find(({ id }) => id === sandboxID)
        if (after[before]?.includes(status) !== true || wasGone.includes(sandboxID)) {
          world.violated(`${sandboxID} moved from ${before} to ${status}`, box)
        }
        if (status === 'error' && reason === undefined) world.violated(`${sandboxID} is in error without a reason`, box)
        if (status === 'error' && box !== undefined && !box.wasKilled && box.deletion === 'none') {
          world.violated(`${sandboxID} is in error, and nobody killed it: ${reason}`, box)
        }
        seen.set(sandboxID, status)
      }
      for (const box of known) {
        if (!listed.has(box.id) && box.deletion === 'none') world.violated(`${box.id} is not listed`, box)
      }
      for (const id of seen.keys()) if (!listed.has(id)) seen.set(id, 'stopped')
    }
    await sleep(everyMs, undefined, { signal: world.over }).catch(() => {})
  }
}
