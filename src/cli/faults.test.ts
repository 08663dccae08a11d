import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createReadStream } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { createServer, type AddressInfo, type Server } from 'node:net'
import { createServer as createHttpServer } from 'node:http'
import { spawn } from 'node:child_process'
import { test } from 'node:test'
import { Atoll, ConnectionError } from '../../sdk/src/index.ts'
import { connectionReason, reasonOf } from '../../sdk/src/reasons.ts'
import { freePort } from '../../test/support/listen.ts'
import { exitCodeOf } from './exit-codes.ts'
import { faultOf } from './faults.ts'

/** Texts of the operating system, OpenSSL and Node that nobody should have to read. */
const raw = /\bE[A-Z]{3,}\b|errno|openssl|ssl3|SSL routines|syscall|fetch failed|UND_ERR/i

async function failure(work: Promise<unknown>): Promise<Error> {
  return await work.then(
    () => assert.fail('it did not fail'),
    (error: Error) => error,
  )
}

async function portOf(server: Server): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return (server.address() as AddressInfo).port
}

async function answerOf(url: string): Promise<Error> {
  return await failure(new Atoll({ url, apiKey: 'k', retries: 0 }).json('GET', '/api/sandboxes'))
}

test('faults: a server that is not there, closes, sends on, or speaks something else is told in plain words', async () => {
  const silent = createServer((socket) => socket.destroy())
  const other = createServer((socket) => socket.end('220 mail ready\r\n'))
  const plain = createHttpServer((_request, response) => response.writeHead(302, { location: '/x' }).end())
  const ports = await Promise.all([silent, other, plain].map((server) => portOf(server)))
  const gone = await freePort()
  try {
    const expectations: [string, RegExp][] = [
      [`http://127.0.0.1:${ports[0]}`, /closed from the other side/],
      [`http://127.0.0.1:${ports[1]}`, /speaks no HTTP/],
      [`http://127.0.0.1:${ports[2]}`, /sends on to another address/],
      [`https://127.0.0.1:${ports[2]}`, /is its URL http:\/\/ and not https/],
      [`http://127.0.0.1:${gone}`, /nothing listens there/],
      ['http://nobody.invalid', /no machine of that name|cannot be looked up|took too long/],
      ['http://127.0.0.1:9', /no server may have that port/],
    ]
    for (const [url, why] of expectations) {
      const error = await answerOf(url)
      const fault = faultOf(error)
      assert.ok(fault !== undefined, error.message)
      assert.ok(fault.message.startsWith(`${url} cannot be reached: `), fault.message)
      assert.match(fault.message, why)
      assert.doesNotMatch(fault.message, raw)
      assert.deepEqual([fault.code, exitCodeOf(error)], ['unreachable', 3])
    }
  } finally {
    for (const server of [silent, other, plain]) server.close()
  }
})

/** Opens the file when the first byte is asked for. */
async function* bytesOf(path: string): AsyncGenerator<Buffer> {
  yield* createReadStream(path) as AsyncIterable<Buffer>
}

test('faults: each certificate that fails is told, with how to trust one', () => {
  const codes = [
    'CERT_HAS_EXPIRED',
    'DEPTH_ZERO_SELF_SIGNED_CERT',
    'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
    'ERR_TLS_CERT_ALTNAME_INVALID',
  ]
  for (const code of codes) {
    const cause = Object.assign(new Error('raw text of OpenSSL'), { code })
    const failed = new TypeError('fetch failed', { cause })
    assert.match(connectionReason(failed), /^its certificate /)
    const fault = faultOf(new ConnectionError('https://x cannot be reached', { cause: failed }))
    assert.match(fault?.hint ?? '', /NODE_EXTRA_CA_CERTS/)
  }
})

test('faults: a file of this machine is told as local, also when a request failed with it', async () => {
  const direct = await failure(readFile('/nothing/here'))
  assert.equal(faultOf(direct)?.message, '/nothing/here on this machine: there is no such file or folder')
  const server = createHttpServer((request, response) => request.resume().on('end', () => response.end()))
  const port = await portOf(server)
  try {
    const body = ReadableStream.from<Uint8Array>(bytesOf('/nothing/here'))
    const sent = await failure(new Atoll({ url: `http://127.0.0.1:${port}`, retries: 0 }).json('PUT', '/x', { body }))
    assert.ok(sent instanceof ConnectionError, 'the SDK cannot tell them apart')
    assert.equal(faultOf(sent)?.code, 'local_error')
    assert.match(faultOf(sent)?.message ?? '', /^\/nothing\/here on this machine: there is no such file/)
    assert.equal(exitCodeOf(sent), 1)
  } finally {
    server.close()
  }
  const full = await failure(writeFile('/dev/full', 'x'))
  assert.match(faultOf(full)?.message ?? '', /^a file on this machine: the disk is full$/)
  const [missing] = (await once(spawn('atoll-no-such-program'), 'error')) as [Error]
  assert.equal(faultOf(missing)?.message, 'atoll-no-such-program is not installed on this machine')
  const server2 = createServer()
  const taken = await portOf(server2)
  const [busy] = (await once(createServer().listen(taken, '127.0.0.1'), 'error')) as [Error]
  server2.close()
  assert.equal(faultOf(busy)?.message, `port ${taken} of this machine: another program listens there`)
})

test('faults: an error that nothing names is told as it is, and one of a socket as that of a connection', async () => {
  assert.equal(reasonOf(await failure(readFile('/nothing/here'))), 'there is no such file or folder')
  const refused = Object.assign(new Error('connect ECONNREFUSED 1.2.3.4:5'), {
    code: 'ECONNREFUSED',
    syscall: 'connect',
  })
  assert.equal(faultOf(refused)?.message, 'the connection failed: nothing listens there')
  assert.equal(faultOf(new Error('a bug')), undefined)
  assert.equal(reasonOf(new Error('a bug')), 'a bug')
})
