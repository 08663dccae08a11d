import { createHash } from 'node:crypto'
import type { ServerResponse } from 'node:http'
import type { Http2ServerResponse } from 'node:http2'
import { setInterval } from 'node:timers/promises'
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib'
import { pairs, send, type Exchange } from './web.ts'

const dripMs = 50
const pattern = patternOf(1024 * 1024)
const compressions: Record<string, (text: string) => Buffer> = {
  gzip: (text) => gzipSync(text),
  br: (text) => brotliCompressSync(text),
  deflate: (text) => deflateSync(text),
}

/**
 * Tells what it was sent, in chunks: for any path but `/gzip`, `/br`, `/deflate` (the same, so encoded where the client takes it, or with `?always`), `/status/N`, `/redirect?to=&status=`,
 * `/events?count=`, `/drip` (a line every while for ever), `/bytes?count=` and `/sum?count=` (their SHA-256), and `/grpc…`.
 */
export async function echo(exchange: Exchange): Promise<void> {
  const { response, url } = exchange
  const writer = response as ServerResponse
  const [, first = ''] = url.pathname.split('/')
  if (first === 'grpc') return grpc(exchange)
  if (first === 'bytes') return await bytes(writer, Number(url.searchParams.get('count')))
  if (first === 'sum') return send(writer, 200, sumOf(Number(url.searchParams.get('count'))))
  if (first === 'drip') return await drip(writer)
  if (first === 'events') return events(writer, Number(url.searchParams.get('count')))
  await exchange.body()
  if (first === 'redirect') {
    const location = url.searchParams.get('to') ?? '/'
    return send(response, Number(url.searchParams.get('status') ?? '302'), '', { location })
  }
  if (first === 'status') return send(response, Number(url.pathname.split('/')[2]), 'so be it')
  const text = told(exchange)
  const authorization = pairs(exchange.seen)['authorization']
  const headers = {
    'content-type': 'application/json',
    ...(authorization === undefined ? {} : { 'x-echo-authorization': authorization }),
  }
  const compress = compressions[first]
  const isTaken = /\balways\b/.test(url.search) || (pairs(exchange.seen)['accept-encoding'] ?? '').includes(first)
  if (compress !== undefined && isTaken)
    return send(response, 200, compress(text), { ...headers, 'content-encoding': first })
  writer.writeHead(200, headers)
  for (let at = 0; at < text.length; at += 7) writer.write(text.slice(at, at + 7))
  writer.end()
}

function told({ seen }: Exchange): string {
  const { rawHeaders: _fields, body, ...others } = seen
  return JSON.stringify({ ...others, headers: pairs(seen), body: body.slice(0, 16_384) })
}

/** A message for a message, as a gRPC server of `stream` methods gives, and its status behind them. */
function grpc({ request, response, seen }: Exchange): void {
  const http2 = response as Http2ServerResponse
  http2.writeHead(200, { 'content-type': 'application/grpc' })
  http2.addTrailers({ 'grpc-status': '0', 'grpc-message': 'fine' })
  request.on('data', (chunk: Buffer) => {
    seen.bodyBytes += chunk.length
    http2.write(chunk)
  })
  request.on('end', () => http2.end())
}

async function bytes(response: ServerResponse, count: number): Promise<void> {
  response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': count })
  for (let left = count; left > 0; left -= pattern.length) {
    if (response.destroyed) return
    const isTaken = response.write(left < pattern.length ? pattern.subarray(0, left) : pattern)
    if (!isTaken) await new Promise<void>((resolve) => response.once('drain', resolve).once('close', resolve))
  }
  response.end()
}

async function drip(response: ServerResponse): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/plain' })
  for await (const _ of setInterval(dripMs)) {
    if (response.destroyed || !response.writable) return
    response.write('drop\n')
  }
}

function events(response: ServerResponse, count: number): void {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
  for (let id = 1; id <= count; id += 1) response.write(`id: ${id}\ndata: event ${id}\n\n`)
  response.end()
}

function sumOf(count: number): string {
  const hash = createHash('sha256')
  for (let left = count; left > 0; left -= pattern.length)
    hash.update(left < pattern.length ? pattern.subarray(0, left) : pattern)
  return hash.digest('hex')
}

/** Bytes that no compression shortens, the same each time. */
function patternOf(count: number): Buffer {
  const blocks = Array.from({ length: count / 32 }, (_, index) => createHash('sha256').update(`${index}`).digest())
  return Buffer.concat(blocks)
}
