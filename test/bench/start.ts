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
  const start = (what: string) =>
    compare(what, 'runc run + runc exec', rounds, {
      async atoll() {
        const { sandboxID } = (await server.json('POST', '/api/sandboxes', { timeout: 0 })) as { sandboxID: string }
        ids.push(sandboxID)
        await exec(sandboxID)
      },
      other: bareStart,
    })
  const started = await start('create a sandbox and run its first command')
  const cold = await withoutPool(server, () => start('the same as a cold start'))
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

/** Runs work while the server keeps no warm sandboxes. */
export async function withoutPool<Result>(server: AtollServer, work: () => Promise<Result>): Promise<Result> {
  await server.stop()
  await server.restart({ ATOLL_WARM_POOL: '0' })
  try {
    return await work()
  } finally {
    await server.stop()
    await server.restart()
  }
}
