import { Agent, createServer, request } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import Fastify from 'fastify'
import type { AtollServer } from '../e2e/server.ts'
import { type Comparison, compare } from './measure.ts'

const rounds = 30
const requestsPerRound = 50
const pageBytes = 10_000

/** Answers of the API against a Fastify that looks nothing up, and pages of a sandbox against the same page served directly. */
export async function httpBench(server: AtollServer): Promise<Comparison[]> {
  const { sandboxID } = (await server.json('POST', '/api/sandboxes', { timeout: 0 })) as { sandboxID: string }
  const fastify = Fastify()
  fastify.get('/api/sandboxes/:id', () => ({ sandboxID, status: 'running', region: 'local' }))
  const bareUrl = await fastify.listen({ port: 0, host: '127.0.0.1' })
  const agent = new Agent({ keepAlive: true })
  const many = async (options: { port: number; path: string; headers: Record<string, string> }) => {
    for (let index = 0; index < requestsPerRound; index += 1) await ask(agent, options)
  }
  const path = `/api/sandboxes/${sandboxID}`
  const read = await compare(`read a sandbox, ${requestsPerRound} times`, 'plain Fastify', rounds, {
    atoll: () => many({ port: server.port, path, headers: { 'X-API-Key': server.key } }),
    bare: () => many({ port: Number(new URL(bareUrl).port), path, headers: {} }),
  })
  await fastify.close()

  // The same program on both sides: in the sandbox behind the proxy, and here without one.
  const program = `require('http').createServer((q,s)=>s.end('x'.repeat(${pageBytes}))).listen(3000,'127.0.0.1')`
  await server.json('POST', `${path}/exec`, { cmd: 'node', args: ['-e', program] })
  const direct = createServer((_request, response) => response.end('x'.repeat(pageBytes))).listen(0, '127.0.0.1')
  await once(direct, 'listening')
  const preview = { port: server.port, path: '/', headers: { Host: `${sandboxID}-p3000.preview.localhost` } }
  while ((await ask(agent, preview)) !== 200);
  const page = await compare(`load a page of 10 kB, ${requestsPerRound} times`, 'direct connection', rounds, {
    atoll: () => many(preview),
    bare: () => many({ port: (direct.address() as AddressInfo).port, path: '/', headers: {} }),
  })
  agent.destroy()
  direct.close()
  await server.json('DELETE', path)
  return [read, page]
}

async function ask(
  agent: Agent,
  options: { port: number; path: string; headers: Record<string, string> },
): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  request({ ...options, host: '127.0.0.1', agent }, (response) => {
    response.resume().once('end', () => resolve(response.statusCode ?? 0))
  })
    .once('error', reject)
    .end()
  return await promise
}
