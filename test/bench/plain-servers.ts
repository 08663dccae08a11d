/**
 * The bare twins of an API route and of a page, in a process of their own like the server that they are compared with: the client and
 * a server of one process would pay no switch between them. It is sent what to answer and answers with its ports.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import Fastify from 'fastify'

export interface PlainPorts {
  fastify: number
  page: number
}

export interface PlainAnswers {
  /** Answered for any id, as an object that Fastify makes text of. */
  sandbox: object
  pageBytes: number
}

process.once('message', (answers: PlainAnswers) => void serve(answers))

async function serve({ sandbox, pageBytes }: PlainAnswers): Promise<void> {
  const fastify = Fastify()
  fastify.get('/api/sandboxes/:id', (request) => ({ ...sandbox, ...(request.params as object) }))
  const url = await fastify.listen({ port: 0, host: '127.0.0.1' })
  const page = createServer((_request, response) => response.end('x'.repeat(pageBytes)))
  page.listen(0, '127.0.0.1', () => {
    const ports: PlainPorts = { fastify: Number(new URL(url).port), page: (page.address() as AddressInfo).port }
    process.send?.(ports)
  })
}
