/** Cookies that a preview sets reach no other preview. */
import assert from 'node:assert/strict'
import { createServer, connect } from 'node:net'
import { after, before, test } from 'node:test'
import { listen } from '../support/listen.ts'
import { hostOf, PreviewWorld } from '../support/preview-world.ts'
import { previewHost } from '../support/world.ts'

let preview: PreviewWorld
let cookies: string[] = []

before(async () => {
  preview = await PreviewWorld.start({
    '/cookies': (_request, response) => void response.setHeader('Set-Cookie', cookies).end(),
  })
})

after(() => preview[Symbol.asyncDispose]())

async function received(sent: string[], host = preview.host): Promise<string[]> {
  cookies = sent
  return (await preview.ask('/cookies', {}, host)).headers['set-cookie'] ?? []
}

test('preview cookie: a cookie loses a Domain that covers other previews, in whatever spelling, and nothing else', async () => {
  const above = [
    previewHost,
    `.${previewHost}`,
    `${previewHost.toUpperCase()}.`,
    ` ${previewHost} `,
    previewHost.slice(previewHost.indexOf('.') + 1),
    `"${previewHost}"`,
    `%70${previewHost.slice(1)}`,
    `\u00e9.${previewHost}`,
    '',
  ]
  const sent = above.map((domain) => `sid=a=b; Path=/;DOMAIN =${domain}; Secure`)
  assert.deepEqual(
    await received(sent),
    sent.map(() => 'sid=a=b; Path=/; Secure'),
  )
  assert.deepEqual(
    await received([`a=1; Domain=${preview.host}; domain=${previewHost}`, `b=2;domain=${previewHost}`]),
    [`a=1; Domain=${preview.host}`, 'b=2'],
  )
})

test('preview cookie: all other cookies pass as they are', async () => {
  const plain = [
    `a=1; Domain=${preview.host}; HttpOnly`,
    `b=2; Domain=.${preview.host.toUpperCase()}`,
    `domain=${previewHost}; Path=/domain=x`,
    'c="x y";  SameSite=Lax ;Max-Age=5',
    '',
  ]
  assert.deepEqual(await received(plain), plain)
})

test('preview cookie: a custom domain shares its cookies with its own names, and not with previews', async () => {
  const domain = 'app.example.com'
  const path = `/api/sandboxes/${preview.id}/preview`
  preview.world.prove(domain)
  assert.equal((await preview.world.api.post(path, { port: preview.port, domain })).status, 201)
  assert.deepEqual(await received(['a=1; Domain=example.com', `b=2; Domain=${previewHost}`], domain), [
    'a=1; Domain=example.com',
    'b=2',
  ])
})

test('preview cookie: the cookies of an upgrade are held to the same', async () => {
  for (const status of ['101 Switching Protocols', '403 Forbidden']) {
    const server = createServer((socket) => {
      socket.on('error', () => {})
      const own = 'Connection: Upgrade\r\nUpgrade: websocket\r\n'
      socket.once('data', () =>
        socket.end(`HTTP/1.1 ${status}\r\n${own}Set-Cookie: a=1; Domain=${previewHost}; Path=/\r\n\r\n`),
      )
    })
    const host = hostOf(preview.id, await listen(server))
    const client = connect(preview.world.port, '127.0.0.1')
    client.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`)
    const answer = (await client.toArray()).map(String).join('')
    assert.match(answer, /\r\nSet-Cookie: a=1; Path=\/\r\n/, status)
    server.close()
  }
})
