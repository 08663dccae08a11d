import { fork } from 'node:child_process'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import type { AtollServer } from '../e2e/server.ts'
import { type Comparison, compare } from './measure.ts'
import { Nginx } from './nginx.ts'
import { missingRow, notInstalled } from './report.ts'
import type { PlainAnswers, PlainPorts } from './plain-servers.ts'

const rounds = 30
const requestsPerRound = 50
/** Of each side before the first round: a server that runs for weeks has its code compiled. */
const warmUpRequests = 3000
const pageBytes = 10_000

/** Answers of the API against a Fastify that answers the same without a look at anything, and pages of a sandbox against the same page served directly. */
export async function httpBench(server: AtollServer): Promise<Comparison[]> {
  const { sandboxID } = (await server.json('POST', '/api/sandboxes', { timeout: 0 })) as { sandboxID: string }
  const plain = fork(`${import.meta.dirname}/plain-servers.ts`)
  const path = `/api/sandboxes/${sandboxID}`
  const answers: PlainAnswers = { sandbox: (await server.json('GET', path)) as object, pageBytes }
  plain.send(answers)
  const [ports] = (await once(plain, 'message')) as [PlainPorts]
  const agent = new Agent({ keepAlive: true })
  const many = async (options: Asked, count = requestsPerRound) => {
    for (let index = 0; index < count; index += 1) await ask(agent, options)
  }
  const compared = async (what: string, against: string, atoll: Asked, other: Asked) => {
    for (const side of [atoll, other]) await many(side, warmUpRequests)
    return await compare(what, against, rounds, { atoll: () => many(atoll), other: () => many(other) })
  }
  const read = await compared(
    `read a sandbox, ${requestsPerRound} times`,
    'plain Fastify',
    { port: server.port, path, headers: { 'X-API-Key': server.key } },
    { port: ports.fastify, path, headers: {} },
  )

  // The same program on both sides: in the sandbox behind the proxy, and here without one.
  const program = `require('http').createServer((q,s)=>s.end('x'.repeat(${pageBytes}))).listen(3000,'127.0.0.1')`
  await server.json('POST', `${path}/exec`, { cmd: 'node', args: ['-e', program] })
  const preview = { port: server.port, path: '/', headers: { Host: `${sandboxID}-p3000.preview.localhost` } }
  while ((await ask(agent, preview)) !== 200);
  const direct = { port: ports.page, path: '/', headers: {} }
  const page = await compared(`load a page of 10 kB, ${requestsPerRound} times`, 'direct connection', preview, direct)
  const rows = [read, page]
  if (await Nginx.isThere()) {
    await using nginx = await Nginx.start(ports.page)
    const proxied = { port: nginx.port, path: '/', headers: {} }
    rows.push(await compared(page.what, 'nginx as proxy of the page', preview, proxied))
  } else {
    missingRow('a page through nginx', notInstalled('nginx'))
  }
  agent.destroy()
  plain.kill()
  await server.json('DELETE', path)
  return rows
}

interface Asked {
  port: number
  path: string
  headers: Record<string, string>
}

/** Gets a page to its end and returns the status. */
export async function ask(agent: Agent, options: Asked): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  request({ ...options, host: '127.0.0.1', agent }, (response) => {
    response.resume().once('end', () => resolve(response.statusCode ?? 0))
  })
    .once('error', reject)
    .end()
  return await promise
}
