/** Where a request ends, for the server inside: never elsewhere than for us, whatever the client says in `Connection`. */
import assert from 'node:assert/strict'
import { createServer, connect } from 'node:net'
import { after, before, test } from 'node:test'
import { listen } from '../support/listen.ts'
import { hostOf, PreviewWorld } from '../support/preview-world.ts'

interface Arrived {
  method: string | undefined
  url: string | undefined
  host: string | undefined
  framing: (string | undefined)[]
  body: string
}

const arrived: Arrived[] = []
let preview: PreviewWorld

before(async () => {
  preview = await PreviewWorld.start({
    '/first': (request, response) => {
      const { method, url, headers } = request
      void request.toArray().then((chunks) => {
        const framing = [headers['content-length'], headers['transfer-encoding']]
        arrived.push({ method, url, host: headers.host, framing, body: chunks.map(String).join('') })
        response.end('first')
      })
    },
  })
})

after(() => preview[Symbol.asyncDispose]())

/** All that comes back for these bytes. */
async function raw(text: string): Promise<string> {
  const socket = connect(preview.world.port, '127.0.0.1')
  socket.write(text)
  return (await socket.toArray()).map(String).join('')
}

test('preview framing: a body is framed for the server inside as it was for us, so that it is never taken for the next request', async () => {
  const hidden = 'GET /hidden HTTP/1.1\r\nHost: evil\r\n\r\n'
  const size = String(hidden.length)
  const bodies = [
    [`Content-Length: ${size}\r\n\r\n${hidden}`, [size, undefined]],
    [
      `Transfer-Encoding: chunked\r\n\r\n${hidden.length.toString(16)}\r\n${hidden}\r\n0\r\n\r\n`,
      [undefined, 'chunked'],
    ],
  ] as const
  const options = [
    'close',
    'Content-Length, close',
    'close, host ,transfer-encoding',
    'content-length\r\nConnection: close',
  ]
  let sent = 0
  for (const method of ['GET', 'HEAD', 'DELETE', 'OPTIONS', 'POST', 'PROPFIND']) {
    for (const connection of options) {
      for (const [body, framing] of bodies) {
        const what = `${method} ${connection} ${framing.join(' ')}`
        // Leaves a connection into the sandbox behind, on which the next request goes.
        assert.equal((await preview.ask('/before')).text, 'hello from /before', what)
        const answer = await raw(
          `${method} /first HTTP/1.1\r\nHost: ${preview.host}\r\nConnection: ${connection}\r\n${body}`,
        )
        assert.match(answer, /^HTTP\/1\.1 200 /, what)
        assert.deepEqual(arrived.pop(), { method, url: '/first', host: preview.host, framing, body: hidden }, what)
        assert.equal((await preview.ask('/after')).text, 'hello from /after', what)
        sent += 3
      }
    }
  }
  assert.deepEqual(
    preview.seen.filter(({ url }) => url === '/hidden'),
    [],
  )
  assert.equal(preview.seen.length, sent)
  assert.ok(new Set(preview.seen.map(({ socket }) => socket)).size < sent, 'connections were kept')
})

test('preview framing: a body of no length is still said to be none, and none is made up', async () => {
  const asked = async (head: string) => {
    await raw(`${head.replace(' ', ' /first ')}\r\nHost: ${preview.host}\r\nConnection: close, content-length\r\n\r\n`)
    return arrived.pop()?.framing
  }
  assert.deepEqual(await asked('GET HTTP/1.1'), [undefined, undefined])
  assert.deepEqual(await asked('GET HTTP/1.1\r\nContent-Length: 0'), ['0', undefined])
  assert.deepEqual(await asked('DELETE HTTP/1.1'), ['0', undefined])
  assert.deepEqual(await asked('POST HTTP/1.1'), ['0', undefined])
})

test('preview framing: requests of unclear length are refused before they reach anybody', async () => {
  const unclear = [
    'Content-Length: 5\r\nContent-Length: 6',
    'Content-Length: 5\r\nTransfer-Encoding: chunked',
    'Content-Length:',
    'Content-Length: +5',
    'Content-Length: 5, 5',
    'Transfer-Encoding:',
    'Transfer-Encoding: xchunked',
    'Transfer-Encoding: chunked, identity',
  ]
  const seenBefore = preview.seen.length
  for (const header of unclear) {
    const answer = await raw(
      `POST /first HTTP/1.1\r\nHost: ${preview.host}\r\nConnection: close\r\n${header}\r\n\r\nhello`,
    )
    assert.match(answer, /^HTTP\/1\.1 400 /, header)
  }
  assert.equal(preview.seen.length, seenBefore)
})

test('preview framing: the head of an upgrade announces no body', async () => {
  let head = ''
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', (chunk) => {
      head = String(chunk)
      socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n')
    })
  })
  const host = hostOf(preview.id, await listen(server))
  const upgrade = 'Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\nhello'
  assert.match(await raw(`GET / HTTP/1.1\r\nHost: ${host}\r\n${upgrade}`), /^HTTP\/1\.1 403 /)
  assert.match(head, /^GET \/ /)
  assert.doesNotMatch(head, /content-length/i)
  server.close()
})
