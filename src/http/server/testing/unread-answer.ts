import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import type { TestContext } from 'node:test'

/** A client that asks for an answer and reads nothing of it before it is resumed. */
export async function unreadAnswer(t: TestContext, answer: (response: ServerResponse) => void): Promise<Socket> {
  const server = createServer((_request, response) => answer(response)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1').on('error', () => undefined)
  t.after(() => {
    client.destroy()
    server.close()
  })
  client.pause()
  client.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
  return client
}
