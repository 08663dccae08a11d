import { useQuery } from '@tanstack/react-query'
import { Session, type Message, type SessionInfo } from 'atoll-sdk'
import { client } from '../../account/client.ts'

/** Of what is read about one session: an event about it makes all of that stale. */
export function sessionKey<Rest extends readonly unknown[]>(id: string, ...rest: Rest): ['session', string, ...Rest] {
  return ['session', id, ...rest]
}

export function sessionOf(info: SessionInfo): Session {
  return new Session(client, info)
}

/** What a person calls it. */
export function titleOf({ name, project, id }: Pick<SessionInfo, 'name' | 'project' | 'id'>): string {
  return name ?? (project.title === '' ? id : project.title)
}

/** A session by its id or name, with the messages that a rewind has left. */
export function useSession(idOrName: string) {
  return useQuery({
    queryKey: sessionKey(idOrName),
    queryFn: async ({ signal }): Promise<SessionInfo> =>
      await client.json('GET', `/v1/sessions/${encodeURIComponent(idOrName)}`, { query: { branch: 'all' }, signal }),
  })
}

/** Messages that the agent has not begun with, oldest first. */
export function waitingOf({ messages }: SessionInfo): Message[] {
  return messages.filter(({ state, left }) => state === 'queued' && left !== true)
}
