import { randomUUID } from 'node:crypto'
import type { AtollServer } from '../e2e/server.ts'
import { BareRunc } from './bare-runc.ts'
import { type Comparison, compare } from './measure.ts'

const rounds = 15

/** A new sandbox up to the answer of its first command, and one more command in it, against runc by hand. */
export async function startBench(server: AtollServer): Promise<Comparison[]> {
  await using bare = new BareRunc()
  const ids: string[] = []
  const bareIds: string[] = []
  const exec = (id: string | undefined) =>
    server.json('POST', `/api/sandboxes/${id}/exec/run`, { cmd: 'true', args: [] })
  const bareStart = async () => {
    const id = await bare.start()
    bareIds.push(id)
    await bare.exec(id, 'true')
  }
  const started = await compare('create a sandbox and run its first command', 'runc run + runc exec', rounds, {
    async atoll() {
      const { sandboxID } = (await server.json('POST', '/api/sandboxes', { timeout: 0 })) as { sandboxID: string }
      ids.push(sandboxID)
      await exec(sandboxID)
    },
    other: bareStart,
  })
  const cold = await compare('the same as a cold start', 'runc run + runc exec', rounds, {
    async atoll() {
      const id = await startCold(server)
      ids.push(id)
      await exec(id)
    },
    other: bareStart,
  })
  const again = await compare('run one more command', 'runc exec', rounds * 2, {
    atoll: () => exec(ids[0]),
    other: () => bare.exec(bareIds[0] ?? '', 'true'),
  })
  const removed = await compare('delete a sandbox', 'runc delete --force + umount', ids.length - 1, {
    atoll: () => server.json('DELETE', `/api/sandboxes/${ids.pop()}`),
    other: () => bare.remove(bareIds.pop() ?? ''),
  })
  return [started, cold, again, removed]
}

/** Under a key of its own a request takes no warm sandbox, as its id derives from the key. */
export async function startCold(server: AtollServer): Promise<string> {
  const response = await server.fetch('/api/sandboxes', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'Idempotency-Key': randomUUID() },
    body: '{"timeout":0}',
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`a cold start answered ${response.status} ${text}`)
  return (JSON.parse(text) as { sandboxID: string }).sandboxID
}
