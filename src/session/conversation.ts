import { Readable } from 'node:stream'
import { ignoreNotFound, ServiceError } from '../errors.ts'
import type { FolderFile, SandboxService } from '../sandbox/index.ts'
import type { Session } from './session.ts'

/** Where the agent keeps the conversation and the journal of its turns (`stateDir` in `protocol/agent.ts`). */
const stateFolder = '/workspace/agent/.atoll'
/** Where a harness keeps what is not below it. */
const ownFolders: Readonly<Record<string, readonly string[]>> = { pi: [], claude: ['/root/.claude'] }
/** Of one conversation; a longer one cannot be told from its machine. */
const bounds = { filesMax: 10_000, bytesMax: 256 * 1024 * 1024 }
const writesAtOnce = 8

/** The files of an agent's conversation, by their folders. */
export type Conversation = ReadonlyMap<string, readonly FolderFile[]>

/** Throws `conflict` for a harness that keeps its conversation nobody knows where, `not_implemented` where disks cannot be read. */
export function assertSeparable(sandboxes: SandboxService, { agentConfig: { harness } }: Session): void {
  if (ownFolders[harness] === undefined)
    throw new ServiceError('conflict', `the conversation of harness ${harness} cannot be told from its machine`, {
      details: { field: 'what' },
    })
  if (sandboxes.trees === undefined)
    throw new ServiceError('not_implemented', 'this driver reads no disks: rewind all', { details: { field: 'what' } })
}

/** Reads the conversation as it was at a checkpoint. */
export async function readConversation(
  sandboxes: SandboxService,
  { orgId, agentConfig: { harness } }: Session,
  checkpointId: string,
): Promise<Conversation> {
  const found = new Map<string, readonly FolderFile[]>()
  for (const folder of [stateFolder, ...(ownFolders[harness] ?? [])])
    found.set(folder, (await sandboxes.trees?.readFolder(orgId, { checkpointId }, folder, bounds)) ?? [])
  return found
}

/** Puts it in place of the one that the sandbox has, whose agent must not run. A repeat is harmless. */
export async function writeConversation(
  { files }: Pick<SandboxService, 'files'>,
  { orgId, sandboxId }: Session,
  conversation: Conversation,
): Promise<void> {
  const root = { user: 'root' }
  for (const [folder, all] of conversation) {
    const draft = `${folder}.rewound`
    await files.remove(orgId, sandboxId, draft, root).catch(ignoreNotFound)
    await files.mkdir(orgId, sandboxId, draft, root)
    for (let start = 0; start < all.length; start += writesAtOnce) {
      const some = all.slice(start, start + writesAtOnce)
      await Promise.all(
        some.map(({ path, content }) =>
          files.write(orgId, sandboxId, `${draft}/${path}`, Readable.from([Buffer.from(content)]), root),
        ),
      )
    }
    await files.remove(orgId, sandboxId, folder, root).catch(ignoreNotFound)
    await files.move(orgId, sandboxId, draft, folder, root)
  }
}
