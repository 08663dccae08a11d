import { readFile } from 'node:fs/promises'
import type { TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'
import { eventually } from '../../../lib/testing/eventually.ts'
import type { EgressEntriesDropped, EgressEntry } from '../../../sandbox/ports/egress.ts'
import { temporaryFolder } from '../../testing/temporary-folder.ts'
import type { EgressStart, ToEgress } from '../frames.ts'
import { EgressProcess, type EgressProcessOptions } from '../process.ts'

const fake = fileURLToPath(new URL('fake-process.ts', import.meta.url))

export const startFrame: EgressStart = {
  op: 'start',
  ...{ listen: '127.0.0.1:1', dns: '127.0.0.1:2', explicit: '127.0.0.1:3' },
  ...{ resolvers: [], roots: '', denied: [], private: [], own_names: {} },
}

export interface Noted {
  pid: number
  op: string
  sandbox?: string
  address?: string
  plan?: { connections_max?: number }
  status?: string[]
}

/** A file in which a fake process notes its frames. */
export async function frameFile(t: TestContext) {
  const file = `${await temporaryFolder(t)}/frames`
  const noted = async (): Promise<Noted[]> => {
    const text = await readFile(file, 'utf8').catch(() => '')
    return text.split('\n').flatMap((line) => (line === '' ? [] : (JSON.parse(line) as Noted)))
  }
  return {
    noted,
    /** Waits for so many frames of a kind. */
    seen: async (op: string, count = 1): Promise<Noted[]> => {
      const found = async () => (await noted()).filter((frame) => frame.op === op)
      await eventually(async () => (await found()).length >= count, { what: `${count} times ${op}` })
      return await found()
    },
    program: (...words: string[]) => [process.execPath, fake, file, ...words],
  }
}

/** What a busy machine takes for the start and the answers of a fake. */
const patient = { startMs: 60_000, readyMs: 60_000, answerMs: 60_000 }

/** As this user, and without a control group. */
export function fakeOptions(program: () => readonly string[]): Partial<EgressProcessOptions> {
  return {
    program: async () => program(),
    user: async () => ({ uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }),
    group: async () => ({ open: async () => [], remove: async () => undefined }),
    startFrame: async () => startFrame,
    times: patient,
  }
}

/** A supervised fake. */
export async function supervised(t: TestContext, options: Partial<EgressProcessOptions> = {}, ...words: string[]) {
  const frames = await frameFile(t)
  const said: string[] = []
  const entries: EgressEntry[] = []
  const dropped: EgressEntriesDropped[] = []
  const egress = new EgressProcess({
    ...(fakeOptions(() => frames.program(...words)) as EgressProcessOptions),
    onStarted: async () => undefined,
    onEntry: (entry) => entries.push(entry),
    onEntriesDropped: (what) => dropped.push(what),
    log: (message) => said.push(message),
    ...options,
    times: { ...patient, ...options.times },
  })
  t.after(() => egress.close())
  egress.start()
  return { ...frames, egress, said, entries, dropped }
}

export function put(sandbox: string): ToEgress {
  return { op: 'put', sandbox, address: '10.0.0.2', plan: { layers: [], secrets: [] } }
}
