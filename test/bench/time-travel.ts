import { execFile } from 'node:child_process'
import { statfs } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { HostNames } from '../../src/runtime/host-names.ts'
import { isTurnComplete, readEvents, type StreamedEvent } from '../e2e/event-stream.ts'
import { askPreview } from '../e2e/preview.ts'
import { takeCheckpoint } from '../e2e/sandbox-calls.ts'
import type { AtollServer } from '../e2e/server.ts'
import { createSession, endSession, getSession, lastId, sendMessage, type Session } from '../e2e/session-client.ts'
import { type Comparison, compare, summary, timed } from './measure.ts'

const run = promisify(execFile)

const mib = 1024 * 1024
/** A turn of an agent that does something takes this long at least. */
const turnMs = 10_000
const turnsInAll = 50
/** First and last turns that are compared. */
const compared = 8
const rounds = 8
const forkRounds = 4
const reads = 30
/** Memory shares space within half a minute after it was saved, and the comparison takes time itself. */
const sharingMs = 75_000
/** A web server, as an agent leaves it. */
const program = `let n=0;require("http").createServer((q,s)=>s.end("asked "+(++n))).listen(3000)`
const start = `run: setsid node -e '${program}' >/dev/null 2>&1 </dev/null & for i in $(seq 100); do curl -sf localhost:3000 && break; sleep 0.05; done`

type Kind = 'turn' | 'disk' | 'none'

/** A session whose sandbox runs an agent and a server. */
interface Talk {
  session: Session
  kind: Kind
  /** Number of the newest event that was read. */
  read: number
}

interface Saved {
  durationMs: number
  bytes: number
}

/** What the checkpoint of a turn costs, forks at a point, and a rewind. */
export async function timeTravelBench(server: AtollServer): Promise<Comparison[]> {
  const ofTurns = await checkpointsOfTurns(server)
  const talk = await openTalk(server, 'turn')
  // What the sessions before have saved shares space only then.
  await sleep(sharingMs)
  const before = await usedBytes(server)
  const saved: Saved[] = []
  while (saved.length < turnsInAll - 1) saved.push(await savedTurn(server, talk))
  await sleep(sharingMs)
  const growth = (await usedBytes(server)) - before
  const rows = [
    ...ofTurns,
    spaceOf(saved, growth),
    lateTurns(saved),
    await timelinePage(server, talk),
    await manyForks(server, talk),
    ...(await rewinds(server, talk)),
  ]
  await endSession(server, talk.session.id)
  return rows
}

/** How long checkpoints of turns take, and how long a message waits for one that comes when a turn ends. */
async function checkpointsOfTurns(server: AtollServer): Promise<Comparison[]> {
  const [full, disk, none] = [
    await openTalk(server, 'turn'),
    await openTalk(server, 'disk'),
    await openTalk(server, 'none'),
  ]
  const durations = { full: [] as number[], disk: [] as number[] }
  for (let round = 0; round < rounds * 2; round += 1) {
    durations.full.push((await savedTurn(server, full)).durationMs)
    durations.disk.push((await savedTurn(server, disk)).durationMs)
  }
  const delay = async (what: string, talk: Talk) => {
    let isUnsaved = false
    return await compare(what, 'without checkpoints', rounds, {
      atoll: () => twoTurns(server, talk),
      other: () => twoTurns(server, none),
      prepare: async () => {
        if (isUnsaved) await untilSaved(server, talk)
        isUnsaved = true
      },
    })
  }
  const ofTen = (what: string, values: number[]) => ({
    what,
    against: 'a turn of ten seconds',
    rounds: values.length,
    atoll: summary(values),
    other: { median: turnMs, p95: turnMs },
  })
  const rows = [
    ofTen('checkpoint of a turn', durations.full),
    ofTen('checkpoint of a turn, disk alone', durations.disk),
    await delay('two messages, one at the end of the other', full),
    await delay('the same, disk alone', disk),
  ]
  for (const { session } of [full, disk, none]) await endSession(server, session.id)
  return rows
}

/** What a turn adds to the disk of the host, with what is not kept any more removed, against what its checkpoint holds. */
function spaceOf(saved: readonly Saved[], growth: number): Comparison {
  const perTurn = growth / saved.length / mib
  return {
    what: 'growth of the disk pool for a turn',
    against: 'bytes of a checkpoint',
    unit: 'MiB',
    rounds: saved.length,
    atoll: { median: perTurn, p95: perTurn },
    other: summary(saved.map(({ bytes }) => bytes / mib)),
  }
}

function lateTurns(saved: readonly Saved[]): Comparison {
  const durations = saved.map(({ durationMs }) => durationMs)
  const [first, last] = [durations.slice(0, compared), durations.slice(-compared)]
  const [what, against] = [`checkpoint of turn ${turnsInAll}`, 'that of the first turns']
  return { what, against, rounds: compared, atoll: summary(last), other: summary(first) }
}

async function timelinePage(server: AtollServer, { session: { id } }: Talk): Promise<Comparison> {
  return await compare(`page of the timeline after ${turnsInAll} turns`, 'read the session', reads, {
    atoll: () => server.json('GET', `/v1/sessions/${id}/timeline`),
    other: () => server.json('GET', `/v1/sessions/${id}`),
  })
}

async function manyForks(server: AtollServer, { session: { id } }: Talk): Promise<Comparison> {
  const [, at = ''] = await newestMessages(server, id)
  const forks: Session[] = []
  const fork = async (count: number) => {
    const body = { user_id: 'ada', at: { message_id: at }, count }
    const answer = (await server.json('POST', `/v1/sessions/${id}/fork`, body)) as { sessions: Session[] }
    forks.push(...answer.sessions)
    await Promise.all(answer.sessions.map((one) => page(server, one)))
  }
  return await compare('five forks at a message, up to their pages', 'one fork', forkRounds, {
    atoll: () => fork(5),
    other: () => fork(1),
    settle: async () => {
      for (const one of forks.splice(0)) await endSession(server, one.id)
    },
  })
}

/** Against a wake, and against what a rewind consists of: a checkpoint of the present, the driver's own save of it, and a start. */
async function rewinds(server: AtollServer, talk: Talk): Promise<Comparison[]> {
  const { session } = talk
  const hibernate = () => server.json('POST', `/api/sandboxes/${session.sandboxId}/hibernate`, {})
  const times = { rewind: [] as number[], wake: [] as number[], steps: [] as number[] }
  for (let round = 0; round < rounds; round += 1) {
    // With an agent that runs, as after any turn.
    await savedTurn(server, talk)
    const to = { message_id: (await newestMessages(server, session.id))[round % 2] }
    const rewind = async () => {
      await server.json('POST', `/v1/sessions/${session.id}/rewind`, { user_id: 'ada', to })
      await page(server, session)
    }
    times.rewind.push(await timed(rewind))
    await savedTurn(server, talk)
    const save = async () => {
      await takeCheckpoint(server, session.sandboxId, `round ${round}`)
      await hibernate()
    }
    const saveMs = await timed(save)
    const wakeMs = await timed(() => page(server, session))
    times.wake.push(wakeMs)
    times.steps.push(saveMs + wakeMs)
  }
  const row = { what: 'rewind, up to the page', rounds, atoll: summary(times.rewind) }
  return [
    { ...row, against: 'wake, up to the page', other: summary(times.wake) },
    { ...row, against: 'checkpoint, hibernate and wake', other: summary(times.steps) },
  ]
}

async function openTalk(server: AtollServer, kind: Kind): Promise<Talk> {
  const session = await createSession(server, start, { agent_config: { checkpoints: kind } })
  const talk = { session, kind, read: 0 }
  await untilEnd(server, talk)
  await untilSaved(server, talk)
  return talk
}

/** One turn, with its checkpoint. */
async function savedTurn(server: AtollServer, talk: Talk): Promise<Saved> {
  await oneTurn(server, talk)
  return await untilSaved(server, talk)
}

/** The second one waits for the checkpoint of the first. */
async function twoTurns(server: AtollServer, talk: Talk): Promise<void> {
  await oneTurn(server, talk)
  await oneTurn(server, talk)
}

async function oneTurn(server: AtollServer, talk: Talk): Promise<void> {
  await sendMessage(server, talk.session.id, 'run: date >>file')
  await untilEnd(server, talk)
}

async function untilEnd(server: AtollServer, talk: Talk): Promise<void> {
  talk.read = lastId(await readEvents(server, talk.session.id, isTurnComplete, talk.read))
}

async function untilSaved(server: AtollServer, talk: Talk): Promise<Saved> {
  if (talk.kind === 'none') return { durationMs: 0, bytes: 0 }
  const events = await readEvents(server, talk.session.id, isSaved, talk.read)
  talk.read = lastId(events)
  const { data } = events.at(-1) as StreamedEvent
  if (data.type === 'error') throw new Error(String(data['message']))
  return { durationMs: Number(data['duration_ms']), bytes: Number(data['size_bytes']) }
}

const isSaved = ({ data }: StreamedEvent) =>
  data.type === 'checkpoint_created' || (data.type === 'error' && data['code'] === 'checkpoint_failed')

/** The two newest messages of the user, in force. */
async function newestMessages(server: AtollServer, id: string): Promise<string[]> {
  const { messages } = await getSession(server, id)
  const asked = messages.filter(({ role }) => role === 'user')
  return asked
    .slice(-2)
    .map((message) => message.id)
    .toReversed()
}

/** Asks until the page is there. */
async function page(server: AtollServer, { previewUrl }: Session): Promise<void> {
  while ((await askPreview(server, new URL(previewUrl).host)).status !== 200) await sleep(10)
}

async function usedBytes({ dataDir }: AtollServer): Promise<number> {
  const { poolDir } = new HostNames(dataDir)
  await run('btrfs', ['filesystem', 'sync', poolDir])
  const { blocks, bfree, bsize } = await statfs(poolDir)
  return (blocks - bfree) * bsize
}
