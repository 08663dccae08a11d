import { once } from 'node:events'
import { Agent, get, type IncomingMessage, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AtollServer } from '../e2e/server.ts'
import { createSession, getSession } from '../e2e/session-client.ts'
import { fillSessions, type LargeSessions } from './load-fixture.ts'
import { type Comparison, summary } from './measure.ts'

const attackMs = 5000
const pauseMs = 1000
/** Requests of the client at one time. */
const loopsCount = 4
const streamsCount = 100
const streamMs = 500
const skillsBytes = 10 * 1024 * 1024
const skillFilesCount = 100

/** What the client does until `signal` aborts. */
type Attack = (server: AtollServer, sessions: LargeSessions, signal: AbortSignal) => Promise<void>

const message = JSON.stringify({ message: 'run: true', user_id: 'ada' })
const skill = 'x\n'.repeat(skillsBytes / skillFilesCount / 2)
const skills = Object.fromEntries(Array.from({ length: skillFilesCount }, (_, index) => [`${index}/SKILL.md`, skill]))
const creation = JSON.stringify({ prompt: 'run: true', user_id: 'ada', agent_config: { skills } })

const attacks: Record<string, Attack> = {
  'searches without a match': loops((server) => ask(server, 'GET', '/v1/sessions?search=%21%21%21')),
  'reads a session of 30 MiB': loops((server, { ended }) => ask(server, 'GET', `/v1/sessions/${ended}`)),
  'reads a session of 80 000 messages': loops((server, { talkative }) =>
    ask(server, 'GET', `/v1/sessions/${talkative}`),
  ),
  'lists sessions': loops((server) => ask(server, 'GET', '/v1/sessions?limit=100')),
  'exports a session': loops((server, { ended }) => ask(server, 'GET', `/v1/sessions/${ended}/export`)),
  'sends messages to a session of 30 MiB': loops((server, { idle }) =>
    ask(server, 'POST', `/v1/sessions/${idle}/messages`, message),
  ),
  'creates sessions with 10 MiB of skills': loops(async (server) => {
    const id = /"id":"([^"]+)"/.exec(await ask(server, 'POST', '/v1/sessions', creation))?.[1]
    if (id !== undefined) await ask(server, 'DELETE', `/v1/sessions/${id}`)
  }),
  'opens event streams and reads none': stare,
}

/**
 * How late the server's event loop is under the load of one client, against the same server at rest. A loop that is never late
 * shows ten milliseconds, in which it is looked at.
 */
export async function loadBench(server: AtollServer): Promise<Comparison[]> {
  const { id } = await createSession(server, 'run: true')
  while ((await getSession(server, id)).activity !== 'idle') await sleep(100)
  await server.stop()
  const sessions = await fillSessions(server, id)
  await server.restart()
  await sleep(attackMs)
  const idle = await loopDelay(server, () => sleep(attackMs))
  const rows: Comparison[] = []
  for (const [what, attack] of Object.entries(attacks)) {
    const end = new AbortController()
    const delay = await loopDelay(server, async () => {
      const attacking = attack(server, sessions, end.signal)
      await sleep(attackMs)
      end.abort()
      await attacking
    })
    const named = `event loop, p99 (at most ${Math.round(delay.maxMs)} ms): one client ${what}`
    const [atoll, other] = [summary([delay.p99Ms]), summary([idle.p99Ms])]
    rows.push({ what: named, against: 'the server at rest', rounds: 1, atoll, other })
    // What an attack has left to be done is not the next one's.
    await sleep(pauseMs)
  }
  await server.json('DELETE', `/v1/sessions/${id}`)
  return rows
}

/** As the server itself has measured it meanwhile: each scrape begins anew. */
async function loopDelay(server: AtollServer, work: () => Promise<unknown>): Promise<{ p99Ms: number; maxMs: number }> {
  await scrape(server)
  await work()
  const text = await scrape(server)
  const of = (name: string) => {
    const value = new RegExp(`^nodejs_eventloop_lag_${name}_seconds (\\S+)$`, 'm').exec(text)?.[1]
    if (value === undefined) throw new Error(`the server has no ${name} of its event loop`)
    return Number(value) * 1000
  }
  return { p99Ms: of('p99'), maxMs: of('max') }
}

async function scrape(server: AtollServer): Promise<string> {
  return await (await server.fetch('/metrics')).text()
}

function loops(call: (server: AtollServer, sessions: LargeSessions) => Promise<unknown>): Attack {
  return async (server, sessions, signal) => {
    const loop = async () => {
      while (!signal.aborted) await call(server, sessions)
    }
    await Promise.all(Array.from({ length: loopsCount }, loop))
  }
}

const agent = new Agent({ keepAlive: true })

/** Takes the answer as fast as it comes and returns its beginning. */
async function ask(server: AtollServer, method: string, path: string, body?: string): Promise<string> {
  const headers = { 'X-API-Key': server.key }
  const asked = request({ host: '127.0.0.1', port: server.port, method, path, agent, headers }).end(body)
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  const head: Buffer[] = []
  for await (const chunk of response as AsyncIterable<Buffer>) if (head.length === 0) head.push(chunk)
  return Buffer.concat(head).toString()
}

/** Opens streams of large events, takes nothing, leaves, and opens others. */
async function stare(server: AtollServer, { ended }: LargeSessions, signal: AbortSignal): Promise<void> {
  const options = { host: '127.0.0.1', port: server.port, path: `/v1/sessions/${ended}/events?api_key=${server.key}` }
  while (!signal.aborted) {
    const opened = Array.from({ length: streamsCount }, () =>
      get({ ...options, agent: false }, (response) => response.pause()).on('error', () => {}),
    )
    await sleep(streamMs)
    for (const one of opened) one.destroy()
  }
}
