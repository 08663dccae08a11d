import { startSandbox } from '../e2e/sandbox-calls.ts'
import type { AtollServer } from '../e2e/server.ts'
import { Incus } from './incus.ts'
import { type Comparison, compare } from './measure.ts'
import { Podman } from './podman.ts'
import { missingRow, notInstalled } from './report.ts'
import { withoutPool } from './start.ts'

const rounds = 10

/** Containers of another tool, from the root file system that Atoll's sandboxes have, on a network of that tool. */
export interface Alternative extends AsyncDisposable {
  /** The commands, as the rows name them. */
  words: { start: string; exec: string; remove: string }
  start(): Promise<string>
  /** Runs `true`. */
  exec(id: string): Promise<unknown>
  remove(id: string): Promise<unknown>
}

interface AlternativeKind {
  isThere(): Promise<boolean>
  open(): Promise<Alternative>
}

const kinds: Record<string, AlternativeKind> = { podman: Podman, Incus }

/** What one would use on one machine in Atoll's place, each with its defaults. */
export async function alternativesBench(server: AtollServer): Promise<Comparison[]> {
  const rows: Comparison[] = []
  for (const [name, kind] of Object.entries(kinds)) {
    if (!(await kind.isThere())) {
      missingRow(name, notInstalled(name))
      continue
    }
    try {
      await using alternative = await kind.open()
      rows.push(...(await rowsAgainst(server, alternative)))
    } catch (error) {
      // Not every machine runs every tool.
      missingRow(name, String(error).trim().split('\n').slice(0, 3).join(' '))
    }
  }
  return rows
}

async function rowsAgainst(server: AtollServer, alternative: Alternative): Promise<Comparison[]> {
  const { words } = alternative
  const ids: string[] = []
  const otherIds: string[] = []
  const exec = (id = '') => server.json('POST', `/api/sandboxes/${id}/exec/run`, { cmd: 'true', args: [] })
  const start = (what: string, startOne: () => Promise<string>) =>
    compare(what, `${words.start} + ${words.exec}`, rounds, {
      async atoll() {
        const id = await startOne()
        ids.push(id)
        await exec(id)
      },
      async other() {
        const id = await alternative.start()
        otherIds.push(id)
        await alternative.exec(id)
      },
    })
  try {
    const started = await start('create a sandbox and run its first command', () => startSandbox(server))
    const cold = await withoutPool(server, () => start('the same as a cold start', () => startSandbox(server)))
    const again = await compare('run one more command', words.exec, rounds * 2, {
      atoll: () => exec(ids[0]),
      other: () => alternative.exec(otherIds[0] ?? ''),
    })
    const removed = await compare('delete a sandbox', words.remove, otherIds.length - 1, {
      atoll: () => server.json('DELETE', `/api/sandboxes/${ids.pop()}`),
      other: () => alternative.remove(otherIds.pop() ?? ''),
    })
    return [started, cold, again, removed]
  } finally {
    for (const id of ids) await server.json('DELETE', `/api/sandboxes/${id}`)
  }
}
