import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AtollServer } from './server.ts'

const shSeconds = 600

export interface Checkpoint {
  id: string
  name: string
  sandboxId: string
  status: string
  error?: string
  sizeBytes: number
}

/** Runs a line of shell in a sandbox and returns what it prints. */
export async function sh(server: AtollServer, sandboxId: string, script: string): Promise<string> {
  const path = `/api/sandboxes/${sandboxId}/exec/run`
  const body = { cmd: 'bash', args: ['-c', script], timeout: shSeconds }
  const run = (await server.json('POST', path, body)) as { stdout: string; timedOut?: boolean }
  assert.notEqual(run.timedOut, true, `it took too long: ${script}`)
  return run.stdout.trim()
}

/** Without a timeout, unless the body says another. */
export async function startSandbox(server: AtollServer, body: object = {}): Promise<string> {
  const started = await server.json('POST', '/api/sandboxes', { timeout: 0, ...body })
  return (started as { sandboxID: string }).sandboxID
}

/** Takes a checkpoint, by default a full one, and returns it once it is `ready` or `failed`. */
export async function settledCheckpoint(
  server: AtollServer,
  sandboxId: string,
  name: string,
  kind: 'full' | 'disk_only' = 'full',
): Promise<Checkpoint> {
  const path = `/api/sandboxes/${sandboxId}/checkpoints`
  const { id } = (await server.json('POST', path, { name, kind })) as Checkpoint
  for (;;) {
    const found = ((await server.json('GET', path)) as Checkpoint[]).find((each) => each.id === id)
    assert.ok(found)
    if (found.status !== 'processing') return found
    await sleep(20)
  }
}

/** The same for a checkpoint that must become `ready`; returns its id. */
export async function takeCheckpoint(...args: Parameters<typeof settledCheckpoint>): Promise<string> {
  const { id, status, error, sizeBytes } = await settledCheckpoint(...args)
  assert.equal(status, 'ready', error)
  assert.ok(sizeBytes > 0)
  return id
}

export async function forkOf(server: AtollServer, checkpointId: string): Promise<string> {
  const path = `/api/sandboxes/from-checkpoint/${checkpointId}`
  return ((await server.json('POST', path, { timeout: 0 })) as { sandboxID: string }).sandboxID
}
