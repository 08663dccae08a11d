import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'
import { WebSocketServer, type WebSocket } from 'ws'
import { Atoll, type AtollOptions } from '../index.ts'

export interface Asked {
  method: string
  path: string
  headers: IncomingMessage['headers']
  body: string
}

type Answer = (asked: Asked, response: ServerResponse) => void

/** A server that answers the requests in turn as it is told, and a client of it. It notes what it was asked. */
export async function fakeServer(t: TestContext, answers: readonly Answer[], options: AtollOptions = {}) {
  const asked: Asked[] = []
  const server = createServer((request, response) => {
    let body = ''
    request.setEncoding('utf8')
    request.on('data', (chunk: string) => (body += chunk))
    request.on('end', () => {
      const { method = '', url = '', headers } = request
      asked.push({ method, path: url, headers, body })
      const answer = answers[Math.min(asked.length, answers.length) - 1]
      answer?.(asked.at(-1)!, response)
    })
  })
  const url = await listening(t, server)
  return { client: new Atoll({ url, apiKey: 'key', ...options }), asked, url }
}

/** A server that takes WebSockets in turn as it is told, and a client of it. */
export async function fakeSockets(t: TestContext, takes: readonly ((socket: WebSocket, path: string) => void)[]) {
  const server = createServer()
  const sockets = new WebSocketServer({ server })
  let count = 0
  sockets.on('connection', (socket, request) => {
    takes[Math.min(count, takes.length - 1)]?.(socket, request.url ?? '')
    count += 1
  })
  const url = await listening(t, server)
  t.after(() => {
    for (const socket of sockets.clients) socket.terminate()
  })
  return { client: new Atoll({ url, apiKey: 'key' }) }
}

async function listening(t: TestContext, server: Server): Promise<string> {
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  t.after(() => {
    server.close()
    server.closeAllConnections()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

export function json(status: number, body: unknown, headers: Record<string, string> = {}): Answer {
  return (_asked, response) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
  }
}

export function refusal(status: number, code: string, headers: Record<string, string> = {}): Answer {
  return json(status, { error: 'no', code }, headers)
}

/** Cuts the connection without an answer. */
export const cut: Answer = (_asked, response) => response.destroy()
