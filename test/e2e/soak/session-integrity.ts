import assert from 'node:assert/strict'
import type { StreamedEvent } from '../event-stream.ts'
import type { Session } from '../session-client.ts'
import { callUntil } from './calls.ts'
import type { User } from './session-user.ts'

/** Codes of `error` events that say which crash a turn met. */
const crashCodes = new Set(['agent_exited', 'host_lost', 'runtime_failed', 'sandbox_stopped', 'unavailable'])

interface ExportLine {
  type: 'session' | 'message' | 'event' | 'stream'
  message?: Session['messages'][number]
  stream?: { sequence: number; data: StreamedEvent['data'] }
}

/**
 * Compares a session at rest with what its user did and saw: one gapless stream, the same for the client that followed it, for
 * a replay and in the export; every accepted message there once, in order, and with a turn of its own.
 */
export async function assertWholeSession(user: User, session: Session): Promise<void> {
  const exported = await exportOf(user)
  const events: StreamedEvent[] = exported.flatMap(({ stream }) =>
    stream ? [{ id: stream.sequence, data: stream.data }] : [],
  )
  assert.deepEqual(
    events.map(({ id }) => id),
    events.map((_event, index) => index + 1),
    `${session.id}: the stream has gaps`,
  )
  assert.deepEqual(await user.followed(events.length), events, `${session.id}: the client saw another stream`)
  assert.deepEqual(await user.replayed(events.length), events, `${session.id}: the replay is another stream`)
  const messages = exported.flatMap(({ message }) => (message ? [message] : []))
  assert.deepEqual(messages, session.messages)
  assertMessages(user, messages)
  assertTurns(user, messages, events)
  await assertCommands(user, session)
}

async function exportOf(user: User): Promise<ExportLine[]> {
  const { text } = await callUntil(user.server, [200], 'GET', `/v1/sessions/${user.sessionId}/export`)
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as ExportLine)
}

function assertMessages(user: User, messages: Session['messages']): void {
  const asked = messages.filter(({ role }) => role === 'user')
  const contents = asked.map(({ content }) => content)
  const expected = user.said.filter(({ outcome, content }) => outcome === 'accepted' || contents.includes(content))
  assert.deepEqual(
    contents,
    expected.map(({ content }) => content),
    `${user.sessionId}: messages were lost, repeated or exchanged`,
  )
  const left = asked.filter(({ state }) => state !== 'consumed' && state !== 'cancelled')
  assert.deepEqual(left, [], `${user.sessionId}: messages were left behind`)
  assert.ok(asked.filter(({ state }) => state === 'cancelled').length <= user.cancels)
}

/** Each turn has one `result`, one `turn_complete`, and either succeeds or says what it met. */
function assertTurns(user: User, messages: Session['messages'], stream: readonly StreamedEvent[]): void {
  const turns = turnsOf(stream)
  const consumed = messages.filter(({ state }) => state === 'consumed')
  assert.deepEqual(
    turns.map((turn) => turn.at(-1)?.data['message_id']),
    consumed.map(({ id }) => id),
    `${user.sessionId}: turns and messages do not match`,
  )
  let interrupted = 0
  for (const [index, turn] of turns.entries()) {
    const { content } = consumed[index]!
    const results = turn.filter(({ data }) => data.type === 'result')
    assert.equal(results.length, 1, `${user.sessionId}: ${content}: ${JSON.stringify(results)}`)
    const { subtype, result } = results[0]!.data
    const marks = turn.filter(({ data }) => data.type === 'error').map(({ data }) => String(data['code']))
    for (const code of marks) assert.ok(crashCodes.has(code), `${user.sessionId}: ${content}: ${JSON.stringify(turn)}`)
    if (subtype === 'interrupted') interrupted += 1
    else if (marks.length === 0) assertDone(user, content, { subtype, result })
  }
  assert.ok(interrupted <= user.interrupts, `${user.sessionId}: turns were interrupted by nobody`)
  const conversations = new Set(turns.map((turn) => turn.at(-1)?.data['session_id']).filter((id) => id !== ''))
  assert.ok(conversations.size <= 1 + user.restarts, `${user.sessionId}: the agent forgot its conversation`)
}

/** A turn without a mark did what it was asked to, whatever the server went through. */
function assertDone(user: User, content: string, { subtype, result }: { subtype: unknown; result: unknown }): void {
  const said = user.said.find((candidate) => candidate.content === content)
  assert.equal(subtype, 'success', `${user.sessionId}: ${content}: ${String(result)}`)
  if (said?.command)
    assert.ok(String(result).includes(`ran-${said.word}`), `${user.sessionId}: ${content}: ${String(result)}`)
}

/** No command of the agent ran twice, whoever died over it. */
async function assertCommands(user: User, { sandboxId }: Session): Promise<void> {
  const run = { cmd: 'sh', args: ['-c', 'touch /workspace/commands.log; cat /workspace/commands.log'] }
  const { status, body } = await callUntil(user.server, [200, 409], 'POST', `/api/sandboxes/${sandboxId}/exec/run`, run)
  // It was killed after all of that: the session goes on in another one.
  if (status === 409) return await assertCommands(user, await user.settle())
  const ran = (body as { stdout: string }).stdout.split('\n').filter((line) => line !== '')
  assert.deepEqual(ran, [...new Set(ran)], `${user.sessionId}: commands ran twice`)
}

/** The events of each turn: all since the `turn_complete` before, up to its own. */
function turnsOf(stream: readonly StreamedEvent[]): StreamedEvent[][] {
  const turns: StreamedEvent[][] = [[]]
  for (const event of stream) {
    turns.at(-1)?.push(event)
    if (event.data.type === 'turn_complete') turns.push([])
  }
  return turns.slice(0, -1)
}
