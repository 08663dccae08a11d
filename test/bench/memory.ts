import { setTimeout as sleep } from 'node:timers/promises'
import { forkOf, sh, startSandbox, takeCheckpoint } from '../e2e/sandbox-calls.ts'
import type { AtollServer } from '../e2e/server.ts'
import { type Comparison, compare } from './measure.ts'

const rounds = 8
const largeMib = 1024
const smallMib = 10
const memoryMb = 2048

/** How long a fork takes that has a process of a gibibyte, against one with a small process: it should be no longer. */
export async function memoryBench(server: AtollServer): Promise<Comparison[]> {
  const large = await checkpointOf(server, largeMib)
  const small = await checkpointOf(server, smallMib)
  const forks: string[] = []
  const fork = async ({ checkpointId }: Source) => {
    const id = await forkOf(server, checkpointId)
    forks.push(id)
    return id
  }
  const use = async (source: Source) => void (await sh(server, await fork(source), 'true'))
  // Its memory may still be on its way, which is not the other side's to wait for.
  const settle = async () => {
    for (const id of forks.splice(0)) await server.json('DELETE', `/api/sandboxes/${id}`)
  }
  const [what, against] = [`fork with a process of ${largeMib} MiB`, `fork with one of ${smallMib} MiB`]
  const rows = [
    await compare(what, against, rounds, { atoll: () => fork(large), other: () => fork(small), settle }),
    await compare(`${what}, and run a command`, against, rounds, {
      atoll: () => use(large),
      other: () => use(small),
      settle,
    }),
  ]
  for (const { sandboxId, checkpointId } of [large, small]) {
    await server.json('DELETE', `/api/sandboxes/${sandboxId}/checkpoints/${checkpointId}`)
    await server.json('DELETE', `/api/sandboxes/${sandboxId}`)
  }
  return rows
}

interface Source {
  sandboxId: string
  checkpointId: string
}

/** A full checkpoint of a sandbox whose process holds so much memory, of which no page is like another. */
async function checkpointOf(server: AtollServer, mib: number): Promise<Source> {
  const sandboxId = await startSandbox(server, { memoryMB: memoryMb })
  const program = `import os, time
held = [bytearray(os.urandom(1 << 20)) for _ in range(${mib})]
open('/tmp/ready', 'w').close()
time.sleep(1e9)`
  await server.json('POST', `/api/sandboxes/${sandboxId}/exec`, { cmd: 'python3', args: ['-c', program] })
  while ((await sh(server, sandboxId, 'ls /tmp/ready 2>/dev/null')) === '') await sleep(100)
  return { sandboxId, checkpointId: await takeCheckpoint(server, sandboxId, 'filled') }
}
