import type { Command } from 'commander'
import {
  Image,
  Sandbox,
  type Atoll,
  type CheckpointInfo,
  type SandboxInfo,
  type SessionInfo,
  type TemplateInfo,
  type TimelinePage,
} from '../../../sdk/src/index.ts'
import { nameFault } from '../../lib/resource-name.ts'
import { baseImage } from '../build.ts'
import { complete, linesOf, type Candidate, type Lookup } from '../completion.ts'
import { write } from '../output.ts'
import { clientOf } from '../settings.ts'
import { relativeTime } from '../units.ts'

/** A person waits for this between two keys. */
const lookMs = 1000
const rowsMax = 100
/** Characters of a message that say which it is. */
const textMax = 100

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
      const all = await client.json<(CheckpointInfo & { sandboxName?: string })[]>('GET', path, {
        query: { limit: rowsMax },
        signal,
      })
      return all.flatMap(({ id, name, sandboxId, sandboxName, createdAt }) =>
        named(
          id,
          sandboxName === undefined || nameFault(name) !== undefined ? undefined : `${sandboxName}/${name}`,
          `${name}, of ${sandboxId}, ${relativeTime(createdAt)}`,
        ),
      )
    },
    async session(client, signal) {
      const { data } = await client.json<{ data: SessionInfo[] }>('GET', '/v1/sessions', {
        query: { limit: rowsMax },
        signal,
      })
      return data.flatMap(({ id, name, status, messages }) =>
        named(id, name, `${status}, ${messages[0]?.content.slice(0, textMax) ?? ''}`),
      )
    },
    async turn(client, signal, [session]) {
      if (session === undefined) return []
      const path = `/v1/sessions/${encodeURIComponent(session)}/timeline`
      const { turns } = await client.json<TimelinePage>('GET', path, { query: { limit: rowsMax }, signal })
      return turns.map(({ messageId, message }) => ({ value: messageId, description: message.slice(0, textMax) }))
    },
    async image(client, signal) {
      const all = await Image.list({ client, signal })
      return all.map(({ info }) => ({ value: info.name ?? info.id, description: info.status }))
    },
    async template(client, signal) {
      const images = await client.json<TemplateInfo[]>('GET', '/api/templates', { signal })
      const candidates = images.map(({ name, status }) => ({ value: name, description: status }))
      return [{ value: baseImage, description: 'installed' }, ...candidates]
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
