import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test } from 'node:test'
import { ConnectionError, Sandbox, Session, UnauthorizedError } from './index.ts'
import { cut, fakeServer, fakeSockets, json, refusal, type Asked } from './testing/fake-server.ts'

const place = { sandboxID: 'sb-1', sandboxDomain: 'x' } as never
const info = { id: 'session_1', userId: 'ada', previewUrl: 'http://x', sandboxId: 'sb-1' } as never

function frame(kind: number, text: string): Buffer {
  return Buffer.concat([Buffer.of(kind), Buffer.from(text)])
}

function exit(code: number): Buffer {
  const message = Buffer.alloc(5)
  message.writeUInt8(3)
  message.writeInt32BE(code, 1)
  return message
}

function eventsFrom(response: ServerResponse, ...sequences: number[]): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.write('retry: 3000\n\n: hello\n\n')
  for (const sequence of sequences) response.write(`id: ${sequence}\ndata: {"type":"n${sequence}"}\n\n`)
}

const stream =
  (...sequences: number[]) =>
  (_asked: Asked, response: ServerResponse) => {
    eventsFrom(response, ...sequences)
    response.end()
  }
const over = (_asked: Asked, response: ServerResponse) => void response.writeHead(204).end()

test('events: each once and in order over broken connections, refusals and repeats, until there are no more', async (t) => {
  const broken = (_asked: Asked, response: ServerResponse) => {
    eventsFrom(response, 3, 4)
    response.write('id: 5\ndata: {"ty')
    setImmediate(() => response.destroy())
  }
  const answers = [stream(1, 2), broken, refusal(503, 'unavailable'), cut, stream(4, 5), over]
  const { client, asked } = await fakeServer(t, answers)
  const seen: unknown[] = []
  for await (const { sequence, data } of new Session(client, info).events()) seen.push([sequence, data.type])
  assert.deepEqual(
    seen,
    [1, 2, 3, 4, 5].map((sequence) => [sequence, `n${sequence}`]),
  )
  assert.deepEqual(
    asked.map(({ headers }) => headers['last-event-id']),
    [undefined, '2', '4', '4', '4', '5'],
  )
})

test('events: drafts are for who asks for them, have no number, and change nothing of the rest', async (t) => {
  const draft = { type: 'assistant_draft', offset: 0, text: 'The reef' }
  const drafted = (_asked: Asked, response: ServerResponse) => {
    eventsFrom(response, 1)
    response.write(`data: ${JSON.stringify(draft)}\n\n`)
    response.write(`id: 2\ndata: {"type":"n2"}\n\n`)
    response.end()
  }
  const { client, asked } = await fakeServer(t, [drafted, over])
  const seen: unknown[] = []
  const onDraft = (piece: unknown) => seen.push(piece)
  for await (const { sequence } of new Session(client, info).events({ onDraft })) seen.push(sequence)
  assert.deepEqual(seen, [1, draft, 2])
  assert.deepEqual(
    asked.map(({ path, headers }) => [new URL(path, 'http://x').search, headers['last-event-id']]),
    [
      ['?drafts=true', undefined],
      ['?drafts=true', '2'],
    ],
  )
})

test('events: a refusal that stays is thrown, an abort ends the stream, and a reader that leaves closes it', async (t) => {
  const refused = await fakeServer(t, [refusal(401, 'unauthorized')])
  await assert.rejects(new Session(refused.client, info).events().next(), UnauthorizedError)
  const { promise: closed, resolve } = Promise.withResolvers<void>()
  const open = (_asked: Asked, response: ServerResponse) => {
    response.once('close', resolve)
    eventsFrom(response, 1)
  }
  const { client } = await fakeServer(t, [open])
  for await (const { sequence } of new Session(client, info).events()) if (sequence === 1) break
  await closed
  const controller = new AbortController()
  const events = new Session(client, info).events({ signal: controller.signal })
  await events.next()
  controller.abort(new Error('enough'))
  await assert.rejects(events.next(), /enough/)
})

test('export: records, also where a line comes in pieces', async (t) => {
  const pieces = (_asked: Asked, response: ServerResponse) => {
    const text = Buffer.from('{"type":"session","session":{"id":"é"}}\n{"type":"message","message":{}}')
    for (const byte of text) response.write(Buffer.of(byte))
    response.end()
  }
  const { client } = await fakeServer(t, [pieces])
  const records: string[] = []
  for await (const record of new Session(client, info).export()) records.push(JSON.stringify(record))
  assert.deepEqual(records, ['{"type":"session","session":{"id":"é"}}', '{"type":"message","message":{}}'])
})

test('process: output that comes with the handshake is heard, and a broken connection goes on where it broke', async (t) => {
  const paths: string[] = []
  const { client } = await fakeSockets(t, [
    (socket, path) => {
      paths.push(path)
      socket.send(frame(1, 'one '))
      socket.send(frame(2, 'err'), () => socket.terminate())
    },
    (socket, path) => {
      paths.push(path)
      socket.send(frame(1, 'two'))
      socket.send(exit(7))
      socket.close(1000)
    },
  ])
  const process = new Sandbox(client, place).attach('es-1')
  const seen: string[] = []
  for await (const { stream: name, data } of process) seen.push(`${name}:${Buffer.from(data).toString()}`)
  assert.deepEqual(seen, ['stdout:one ', 'stderr:err', 'stdout:two'])
  assert.equal(await process.exited, 7)
  assert.equal(process.offset, 10)
  assert.deepEqual(paths, ['/api/sandboxes/sb-1/exec/es-1?offset=0', '/api/sandboxes/sb-1/exec/es-1?offset=7'])
})

test('process: output that the sandbox has dropped is counted', async (t) => {
  const large = frame(1, 'x'.repeat(1024 * 1024))
  const written = Buffer.alloc(9)
  written.writeUInt8(4)
  written.writeBigInt64BE(5_000_000n, 1)
  const { client } = await fakeSockets(t, [
    (socket) => {
      socket.send(large)
      socket.send(exit(0))
    },
    (socket) => socket.send(written),
  ])
  const process = new Sandbox(client, place).attach('es-1')
  assert.equal(await process.wait(), 0)
  assert.equal(await process.lost(), 5_000_000 - 1024 * 1024)
})

test('process: what it is written and the end of its input arrive in their order', async (t) => {
  const heard: string[] = []
  const { client } = await fakeSockets(t, [
    (socket) => {
      socket.on('message', (message: Buffer) => {
        heard.push(message.toString())
        if (message.length === 1) socket.send(exit(0))
      })
    },
  ])
  const process = new Sandbox(client, place).attach('es-1')
  await process.write('a')
  await process.write('')
  await process.write(new Uint8Array([98]))
  await process.end()
  assert.equal(await process.wait(), 0)
  assert.deepEqual(heard, ['\0a', '\0b', '\0'])
})

test('process: the refusal of a connection is the error of the server, and an abort ends it', async (t) => {
  const { client } = await fakeServer(t, [refusal(401, 'unauthorized')])
  const refused = new Sandbox(client, place).attach('es-1')
  await assert.rejects(refused.wait(), UnauthorizedError)
  await assert.rejects(refused.exited, UnauthorizedError)
  const silent = await fakeSockets(t, [() => undefined])
  const controller = new AbortController()
  const waiting = new Sandbox(silent.client, place).attach('es-1', { signal: controller.signal }).wait()
  setImmediate(() => controller.abort(new Error('enough')))
  await assert.rejects(waiting, /enough/)
})

test('terminal: bytes both ways, and the exit code of its shell where the server tells it', async (t) => {
  const { client } = await fakeSockets(t, [
    (socket) => {
      socket.on('message', (message: Buffer) => {
        socket.send(message)
        socket.close(1000, 'exit 3')
      })
    },
    (socket) => socket.close(1000),
    (socket) => socket.close(1011, 'the sandbox was stopped'),
  ])
  const sandbox = new Sandbox(client, place)
  const terminal = sandbox.attachTerminal('ps-1')
  await terminal.write('ls\n')
  let said = ''
  for await (const bytes of terminal) said += Buffer.from(bytes).toString()
  assert.deepEqual([said, await terminal.exited], ['ls\n', 3])
  assert.equal(await sandbox.attachTerminal('ps-1').wait(), undefined)
  await assert.rejects(sandbox.attachTerminal('ps-1').wait(), /the sandbox was stopped/)
})

test('files: a download goes on from an offset', async (t) => {
  const { client, asked } = await fakeServer(t, [
    (_asked, response) => response.writeHead(206).end('rest'),
    json(200, []),
  ])
  const { files } = new Sandbox(client, place)
  const rest = await new Response(await files.readStream('/a b/ü', { offset: 4 })).text()
  assert.equal(rest, 'rest')
  assert.equal(asked[0]?.headers.range, 'bytes=4-')
  assert.equal(asked[0]?.path, '/api/sandboxes/sb-1/files?path=%2Fa+b%2F%C3%BC')
})

test('a server that is gone ends an attachment with an error', async () => {
  const { Atoll } = await import('./index.ts')
  const sandbox = new Sandbox(new Atoll({ url: 'http://127.0.0.1:9' }), place)
  const waiting = sandbox.attach('es-1', { signal: AbortSignal.timeout(300) }).wait()
  await assert.rejects(waiting, (error: Error) => error.name === 'TimeoutError' || error instanceof ConnectionError)
})

test('watch: a sandbox that is on its way to sleep is not woken by the next watch', async (t) => {
  const told = (change: unknown) => (_asked: Asked, response: ServerResponse) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`data: ${JSON.stringify(change)}\n\n`)
  }
  const runs = (startedAt: string) => json(200, { ...(place as object), status: 'running', startedAt })
  const answers = [
    ...[runs('1'), told({ type: 'ended', reason: 'hibernated' })],
    ...[runs('1'), json(200, { status: 'hibernated', startedAt: '1' }), runs('2'), runs('2')],
    told({ type: 'ended', reason: 'removed' }),
  ]
  const { client, asked } = await fakeServer(t, answers)
  const changes: unknown[] = []
  for await (const { type } of new Sandbox(client, place).files.watch('/x')) changes.push(type)
  assert.deepEqual(changes, ['lost', 'ended'])
  const watches = asked.flatMap(({ path }, index) => (path.includes('/watch') ? [index] : []))
  assert.deepEqual(watches, [1, 6])
})

test('terminal: `onOpen` is called for each connection that is made', async (t) => {
  const { client } = await fakeSockets(t, [(socket) => socket.close(1012), (socket) => socket.close(1000, 'exit 3')])
  let opened = 0
  const terminal = new Sandbox(client, place).attachTerminal('ps-1', { onOpen: () => (opened += 1) })
  assert.equal(await terminal.wait(), 3)
  assert.equal(opened, 2)
})
