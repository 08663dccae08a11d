/** Sessions that go back, forward and apart, with the files, the memory and the conversation of real processes (docs/use/time-travel.md). */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type StreamedEvent, readEvents } from './event-stream.ts'
import { sh } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import {
  assertNumbered,
  createSession,
  endSession,
  getSession,
  lastId,
  sendMessage,
  type Session,
  sessionPage,
} from './session-client.ts'

const server = await AtollServer.startForFile({ env: { ATOLL_SESSION_CHECKPOINTS: 'turn' } })

/** Serves the text of a file, and counts in its memory how often it was asked. */
const program = `let n=0;require("http").createServer((q,s)=>s.end(require("fs").readFileSync("page.txt","utf8").trim()+" asked "+(++n))).listen(3000)`
const ask = 'for i in $(seq 100); do curl -sf localhost:3000 && break; sleep 0.05; done'

interface Story {
  session: Session
  /** Ids of the messages, and the events up to the checkpoint of each. */
  messages: string[]
  events: StreamedEvent[]
}

interface Rewound {
  session: Session
  restoredPrompt: string | null
  undoCheckpointId: string
  processes: string
}

const isSaved = ({ data }: StreamedEvent) => data.type === 'checkpoint_created'
/** A checkpoint of a turn was made, or has failed, which harms no turn. */
const isSettled = (event: StreamedEvent) => isSaved(event) || event.data['code'] === 'checkpoint_failed'

/** The events of a turn, up to its checkpoint. */
async function turnSaved(id: string, after?: number): Promise<StreamedEvent[]> {
  const events = await readEvents(server, id, isSettled, after)
  assert.ok(isSaved(events.at(-1)!), JSON.stringify(events.at(-1)))
  return events
}

/** A session whose server is asked once in each of so many turns, and whose page tells the turn. */
async function story(turns: number): Promise<Story> {
  const run = (turn: number, more: string) =>
    `run: git init -q 2>/dev/null; echo page ${turn} >page.txt; echo ${turn} >untracked-${turn}; echo ignored-${turn} >>.gitignore; ` +
    `echo ${turn} >ignored-${turn}; echo ${turn} >/tmp/made-${turn}; ${more}`
  const start = `setsid node -e '${program}' >/dev/null 2>&1 </dev/null & ${ask}`
  const session = await createSession(server, run(1, start))
  let events = await turnSaved(session.id)
  for (let turn = 2; turn <= turns; turn += 1) {
    await sendMessage(server, session.id, run(turn, ask))
    events = [...events, ...(await turnSaved(session.id, lastId(events)))]
  }
  assertNumbered(events)
  const { messages } = await getSession(server, session.id)
  return { session, events, messages: messages.filter(({ role }) => role === 'user').map(({ id }) => id) }
}

async function rewind(id: string, to: object, what = 'all'): Promise<Rewound> {
  return (await server.json('POST', `/v1/sessions/${id}/rewind`, { user_id: 'ada', to, what })) as Rewound
}

/** The files that turns make, of the working folder and of `/tmp`. */
const made = async ({ sandboxId }: Session) =>
  await sh(server, sandboxId, 'cd /workspace/app && ls -d untracked-* ignored-* /tmp/made-* | xargs')

const filesOf = (turns: number) => {
  const numbers = Array.from({ length: turns }, (_one, index) => index + 1)
  return ['/tmp/made-', 'ignored-', 'untracked-'].flatMap((name) => numbers.map((one) => `${name}${one}`)).join(' ')
}

const prompts = async (id: string) =>
  (await getSession(server, id)).messages.filter(({ role }) => role === 'user').map(({ content }) => content)

async function until(id: string, activity: string): Promise<void> {
  while ((await getSession(server, id)).activity !== activity) await new Promise((resolve) => setTimeout(resolve, 20))
}

test('rewind: page, counter, files and conversation go back to a turn, and an undo takes them forward', async () => {
  const { session, messages, events } = await story(5)
  const { id } = session
  assert.equal(await sessionPage(server, session), 'page 5 asked 6')

  const request = { user_id: 'ada', to: { message_id: messages[1] } }
  const preview = (await server.json('POST', `/v1/sessions/${id}/rewind?preview=true`, request)) as {
    files: { files: { path: string; change: string }[] }
    turnsLeft: string[]
    processesEnded: string[]
  }
  assert.deepEqual(preview.turnsLeft, messages.slice(2).toReversed())
  const changed = preview.files.files.map(({ path, change }) => `${change} ${path}`)
  assert.ok(changed.includes('modified page.txt') && changed.includes('deleted untracked-5'), changed.join())
  assert.ok(preview.processesEnded.some((command) => command.startsWith('node -e')))
  assert.equal(await sessionPage(server, session), 'page 5 asked 7')

  const back = await rewind(id, { message_id: messages[1] })
  assert.equal(back.processes, 'restored')
  assert.match(back.restoredPrompt ?? '', /page 3/)
  assert.equal(back.session.sandboxId, session.sandboxId)
  assert.equal(await sessionPage(server, session), 'page 2 asked 3')
  assert.equal(await made(session), filesOf(2))
  assert.equal((await prompts(id)).length, 2)

  const forward = await rewind(id, { checkpoint_id: back.undoCheckpointId })
  assert.equal(forward.restoredPrompt, null)
  assert.equal(await sessionPage(server, session), 'page 5 asked 8')
  assert.equal(await made(session), filesOf(5))
  assert.equal((await prompts(id)).length, 5)

  // The agent goes on in the branch in force, as if nothing had come after it.
  await rewind(id, { checkpoint_id: forward.undoCheckpointId })
  const read = await readEvents(
    server,
    id,
    (_event, all) => all.filter(({ data }) => data.type === 'rewound').length === 3,
  )
  assertNumbered(read)
  assert.deepEqual(read.slice(0, events.length), events)
  await sendMessage(server, id, 'run: cat page.txt')
  const next = await turnSaved(id, lastId(read))
  assert.match(JSON.stringify(next), /page 2/)
  assert.equal((await prompts(id)).length, 3)
  const all = (await server.json('GET', `/v1/sessions/${id}?branch=all`)) as {
    messages: { role: string; left?: boolean }[]
  }
  assert.equal(all.messages.filter(({ role, left }) => role === 'user' && left).length, 3)
  await endSession(server, id)
})

test('rewind: the machine alone keeps the conversation, the conversation alone keeps the machine', async () => {
  const { session, messages } = await story(3)
  const { id } = session
  const machine = await rewind(id, { message_id: messages[0] }, 'machine')
  assert.equal(await sessionPage(server, session), 'page 1 asked 2')
  assert.equal((await prompts(id)).length, 3)
  const lines = () => sh(server, session.sandboxId, 'grep -c asked /workspace/agent/.atoll/pi/conversation.jsonl')
  const whole = await lines()
  await rewind(id, { checkpoint_id: machine.undoCheckpointId })
  assert.match(await sessionPage(server, session), /^page 3 asked/)
  const talk = await rewind(id, { message_id: messages[0] }, 'conversation')
  assert.equal(talk.processes, 'kept')
  assert.match(await sessionPage(server, session), /^page 3 asked/)
  assert.equal(await made(session), filesOf(3))
  assert.equal((await prompts(id)).length, 1)
  assert.ok(Number(await lines()) < Number(whole))
  await until(id, 'idle')
  await endSession(server, id)
})

test('fork: five variants of a turn are live, one is adopted, and that is undone', async () => {
  const { session, messages } = await story(3)
  const { id } = session
  const variants = [1, 2, 3, 4, 5].map((variant) => ({ message: `run: echo variant ${variant} >page.txt` }))
  const body = { user_id: 'ada', at: { message_id: messages[1] }, variants }
  const { sessions } = (await server.json('POST', `/v1/sessions/${id}/fork`, body)) as { sessions: Session[] }
  assert.equal(sessions.length, 5)
  // On a busy machine one may come too late.
  await Promise.all(sessions.map((fork) => readEvents(server, fork.id, isSettled)))
  const pages = await Promise.all(sessions.map((fork) => sessionPage(server, fork)))
  assert.deepEqual(
    pages,
    [1, 2, 3, 4, 5].map((variant) => `variant ${variant} asked 3`),
  )
  assert.equal(await sessionPage(server, session), 'page 3 asked 4')
  const hosts = await Promise.all(
    sessions.map(({ sandboxId }) => sh(server, sandboxId, 'hostname; cat /etc/machine-id')),
  )
  assert.equal(new Set(hosts).size, 5)

  const chosen = sessions[2]!
  const adopted = (await server.json('POST', `/v1/sessions/${id}/adopt`, {
    user_id: 'ada',
    from: chosen.id,
  })) as Rewound
  assert.equal(adopted.session.sandboxId, session.sandboxId)
  assert.equal(await sessionPage(server, session), 'variant 3 asked 4')
  assert.deepEqual((await prompts(id)).length, 3)
  assert.match((await prompts(id))[2] ?? '', /variant 3/)
  const other = (await getSession(server, sessions[0]!.id)) as Session & { archivedReason?: string }
  assert.match(other.archivedReason ?? '', /adopted/)

  await rewind(id, { checkpoint_id: adopted.undoCheckpointId })
  assert.equal(await sessionPage(server, session), 'page 3 asked 5')
  assert.match((await prompts(id))[2] ?? '', /page 3/)
  await until(id, 'idle')
  await sendMessage(server, id, 'run: hostname')
  const read = await readEvents(server, id, ({ data }) => data.type === 'result' && /sb-/.test(String(data['result'])))
  assert.match(JSON.stringify(read.at(-1)), new RegExp(session.sandboxId))
  for (const one of [session, ...sessions]) await endSession(server, one.id)
})
