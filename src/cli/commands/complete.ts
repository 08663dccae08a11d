import type { Command } from 'commander'
import {
  Image,
  Sandbox,
  type Atoll,
  type CheckpointInfo,
  type SandboxInfo,
  type SessionInfo,
} from '../../../sdk/src/index.ts'
import { complete, linesOf, type Candidate, type Lookup } from '../completion.ts'
import { write } from '../output.ts'
import { clientOf } from '../settings.ts'
import { relativeTime } from '../units.ts'

/** A person waits for this between two keys. */
const lookMs = 1000
const rowsMax = 100

/** What the script of `atoll completion` asks. It is silent whatever fails. */
export function addComplete(program: Command): void {
  program
    .command('complete')
    .description('print what may stand in place of the last word, for the script of "atoll completion"')
    .argument('[words...]', 'all words behind atoll, the last one begun or empty')
    .action(async (words: string[]) => {
      try {
        await write(linesOf(await complete(words, look)))
      } catch {
        // An error in the midst of a line that is being typed helps nobody.
      }
    })
}

const look: Lookup = async (kind, flags, operands) => {
  const client = await clientOf({ ...flags, requestTimeout: lookMs / 1000 })
  const signal = AbortSignal.timeout(lookMs)
  return (await lists[kind]?.(client, signal, operands).catch(() => [])) ?? []
}

const lists: Record<string, (client: Atoll, signal: AbortSignal, operands: readonly string[]) => Promise<Candidate[]>> =
  {
    async sandbox(client, signal) {
      const call = { query: { limit: rowsMax }, signal }
      const all = await client.json<SandboxInfo[]>('GET', '/api/sandboxes', call)
      return all
        .filter(({ status }) => status !== 'stopped')
        .flatMap(({ sandboxID, name, status, templateID, startedAt }) =>
          named(sandboxID, name, `${status}, ${templateID}, ${relativeTime(startedAt)}`),
        )
    },
    async checkpoint(client, signal, [sandbox]) {
      const path = sandbox?.startsWith('sb-') ? `/api/sandboxes/${sandbox}/checkpoints` : '/api/checkpoints'
      const all = await client.json<CheckpointInfo[]>('GET', path, { query: { limit: rowsMax }, signal })
      return all.map(({ id, name, sandboxId, createdAt }) => ({
        value: id,
        description: `${name}, of ${sandboxId}, ${relativeTime(createdAt)}`,
      }))
    },
    async session(client, signal) {
      const { sessions } = await client.json<{ sessions: SessionInfo[] }>('GET', '/v1/sessions', {
        query: { limit: rowsMax },
        signal,
      })
      return sessions.flatMap(({ id, name, status, messages }) =>
        named(id, name, `${status}, ${messages[0]?.content ?? ''}`),
      )
    },
    async image(client, signal) {
      const all = await Image.list({ client, signal })
      return all.map(({ info }) => ({ value: info.name ?? info.id, description: info.status }))
    },
    async volume(client, signal) {
      return (await client.volumes.list({ signal })).map(({ name, sizeMB }) => ({
        value: name,
        description: `${sizeMB} MB`,
      }))
    },
    async process(client, signal, operands) {
      const sandbox = await awake(client, signal, operands)
      const all = (await sandbox?.spawned({ signal })) ?? []
      return all.map((one) => ({
        value: one.sessionID,
        description: `${one.running ? 'running' : 'ended'}, ${[one.command, ...one.args].join(' ')}`,
      }))
    },
    async port(client, signal, operands) {
      const sandbox = await awake(client, signal, operands)
      const all = (await sandbox?.ports({ signal })) ?? []
      return all.map(({ port, command = '' }) => ({ value: String(port), description: command }))
    },
  }

/** The name serves wherever the id does. */
function named(id: string, name: string | null | undefined, description: string): Candidate[] {
  const byId = { value: id, description }
  return name === undefined || name === null ? [byId] : [{ value: name, description: `${description}, ${id}` }, byId]
}

/** The sandbox of the first argument, unless a question would wake it. */
async function awake(client: Atoll, signal: AbortSignal, [id]: readonly string[]): Promise<Sandbox | undefined> {
  if (id === undefined) return undefined
  const info = await client.json<SandboxInfo>('GET', `/api/sandboxes/${encodeURIComponent(id)}`, { signal })
  return info.status === 'running' ? new Sandbox(client, info) : undefined
}
