import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A process that is sent server-sent events and writes them, as they are, to whoever asks; it answers with its port. */
process.once('message', (texts: string[]) => {
  const events = texts.map((text) => Buffer.from(text))
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const event of events) response.write(event)
  }).listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port))
})
