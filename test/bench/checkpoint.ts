import type { AtollServer } from '../e2e/server.ts'
import { BareRunc } from './bare-runc.ts'
import { BareTwin } from './bare-twin.ts'
import { type Comparison, compare } from './measure.ts'

const rounds = 8
/** A server with 50 MB of live memory. Not Node: without Atoll's seccomp filter it opens an io_uring, which CRIU cannot dump. */
const program = [
  'python3',
  '-c',
  'import http.server; held = bytearray(b"7" * 50_000_000); http.server.test(port=3000)',
]

/**
 * Dump, fork and wake of a whole sandbox (guest, program, disk) against `runc checkpoint` and `runc restore`: of the same
 * images with the same isolation, and of the program alone in a container with next to none. Both copy the disk before.
 */
export async function checkpointBench(server: AtollServer): Promise<Comparison[]> {
  await using bare = new BareRunc()
  const { sandboxID: source } = (await server.json('POST', '/api/sandboxes', { timeout: 0 })) as { sandboxID: string }
  await server.json('POST', `/api/sandboxes/${source}/exec`, { cmd: program[0], args: program.slice(1) })
  const bareSource = await bare.start(program)
  await new Promise((resolve) => setTimeout(resolve, 2000))

  const checkpoints: string[] = []
  const dump = await compare('full checkpoint', 'runc checkpoint --leave-running', rounds, {
    async atoll(round) {
      checkpoints.push(await checkpoint(server, source, `round ${round}`))
    },
    other: (round) => bare.checkpoint(bareSource, `images${round}`),
  })
  const from = checkpoints[0] ?? ''
  const forks: string[] = []
  const fork = async () => {
    const started = (await server.json('POST', `/api/sandboxes/from-checkpoint/${from}`, {})) as { sandboxID: string }
    forks.push(started.sandboxID)
  }
  const hibernate = () => server.json('POST', `/api/sandboxes/${source}/hibernate`, {})
  const wake = () => server.json('POST', `/api/sandboxes/${source}/wake`, { timeout: 0 })
  await using twin = await BareTwin.open({ dataDir: server.dataDir, sandboxId: source, checkpointId: from })
  const plain = async () => void (await bare.restore(bareSource, 'images0'))
  const same = async () => void (await twin.restore())
  const rows = [
    dump,
    await compare('fork', 'runc restore of the same', rounds, { atoll: fork, other: same }),
    await compare('fork', 'runc restore, no isolation', rounds, { atoll: fork, other: plain }),
    await compare('wake', 'runc restore of the same', rounds, { prepare: hibernate, atoll: wake, other: same }),
    await compare('wake', 'runc restore, no isolation', rounds, { prepare: hibernate, atoll: wake, other: plain }),
  ]
  for (const id of [...forks, source]) await server.json('DELETE', `/api/sandboxes/${id}`)
  for (const id of checkpoints) await server.json('DELETE', `/api/sandboxes/${source}/checkpoints/${id}`)
  return rows
}

/** Returns its id once it is ready. */
export async function checkpoint(server: AtollServer, sandboxId: string, name: string): Promise<string> {
  const path = `/api/sandboxes/${sandboxId}/checkpoints`
  const { id } = (await server.json('POST', path, { name })) as { id: string }
  for (;;) {
    const list = (await server.json('GET', path)) as { id: string; status: string; error?: string }[]
    const found = list.find((item) => item.id === id)
    if (found?.status === 'ready') return id
    if (found?.status !== 'processing') throw new Error(`the checkpoint ${found?.error ?? 'has gone'}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
