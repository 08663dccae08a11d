import { NotFoundError, Session, type Atoll, type SessionInfo } from '../../../sdk/src/index.ts'
import { checkedId } from '../options.ts'
import { hint, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

/** The path of a session, by its id or name. */
export function sessionPath(id: string): string {
  return `/v1/sessions/${checkedId(id, 'session_', 'session')}`
}

export async function connect(id: string, flags: Flags): Promise<Session> {
  return await Session.connect(checkedId(id, 'session_', 'session'), { client: await clientOf(flags) })
}

/** Posts as the owner of the session, whom the session names. */
export async function post<Answer = SessionInfo>(
  client: Atoll,
  id: string,
  action: string,
  json: object,
): Promise<Answer> {
  const path = sessionPath(id)
  const { userId } = await client.json<SessionInfo>('GET', path)
  if (userId === undefined) throw new NotFoundError(`there is no session ${id}`)
  const call = { json: { user_id: userId, ...json }, creates: action !== 'interrupt' }
  return await client.json<Answer>('POST', `${path}/${action}`, call)
}

/** Prints the id of a session that was made. */
export async function writeMade(info: SessionInfo, flags: Flags): Promise<void> {
  if (flags.json) return await writeJson(info)
  await writeLine(info.id)
  hint(`atoll session watch ${info.name ?? info.id}; its page: ${info.previewUrl}`)
}
