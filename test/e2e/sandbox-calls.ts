import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AtollServer } from './server.ts'

/** Runs a line of shell in a sandbox and returns what it prints. */
export async function sh(server: AtollServer, sandboxId: string, cmd: string): Promise<string> {
  const path = `/api/sandboxes/${sandboxId}/exec/run`
  const run = (await server.json('POST', path, { cmd: 'sh', args: ['-c', cmd] })) as { stdout: string }
  return run.stdout.trim()
}

export async function startSandbox(server: AtollServer): Promise<string> {
  return ((await server.json('POST', '/api/sandboxes', { timeout: 0 })) as { sandboxID: string }).sandboxID
}

/** Takes a full checkpoint and returns its id when it is ready. */
export async function fullCheckpoint(server: AtollServer, sandboxId: string, name: string): Promise<string> {
  const path = `/api/sandboxes/${sandboxId}/checkpoints`
  const { id } = (await server.json('POST', path, { name })) as { id: string }
  for (;;) {
    const list = (await server.json('GET', path)) as { id: string; status: string; error?: string }[]
    const { status, error } = list.find((item) => item.id === id) ?? {}
    if (status === 'ready') return id
    assert.equal(status, 'processing', error)
    await sleep(20)
  }
}

export async function forkOf(server: AtollServer, checkpointId: string): Promise<string> {
  const path = `/api/sandboxes/from-checkpoint/${checkpointId}`
  return ((await server.json('POST', path, {})) as { sandboxID: string }).sandboxID
}
