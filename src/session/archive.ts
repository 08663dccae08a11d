import type { Ownership } from './ownership.ts'
import type { SessionRunners } from './runners.ts'
import type { SessionDeps } from './service.ts'
import type { SessionHead } from './store.ts'

interface ArchiveContext extends Pick<SessionDeps, 'store' | 'sandboxes' | 'log'> {
  ownership: Ownership
  runners: SessionRunners
}

const forksMax = 1000

/**
 * Archives the forks of a session that adopts one of them: each is left as it is, and hibernates unless it works. A repeat does the same
 * again. A fork that fails is logged and left unarchived.
 */
export async function archiveForks(
  { store, sandboxes, ownership, runners, log }: ArchiveContext,
  session: Pick<SessionHead, 'id' | 'orgId'>,
  adoptedId: string,
): Promise<void> {
  for (const { id, status } of await store.forksOf(session.id, { limit: forksMax })) {
    if (id === adoptedId || status === 'ended') continue
    try {
      const fork = await ownership.owned(session.orgId, id)
      await runners.of(fork).archive(`session ${adoptedId} was adopted`)
      if (fork.activity === 'idle') await sandboxes.hibernate(session.orgId, fork.sandboxId)
    } catch (error) {
      log.warn({ err: error, sessionId: id }, 'a fork was not archived')
    }
  }
}
