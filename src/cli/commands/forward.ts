import { createServer, request as requestHttp, type IncomingMessage, type ServerResponse } from 'node:http'
import { request as requestHttps } from 'node:https'
import { once } from 'node:events'
import type { Duplex } from 'node:stream'
import type { AddressInfo } from 'node:net'
import type { Command } from 'commander'
import { Sandbox } from '../../../sdk/src/index.ts'
import { CliError, UsageError } from '../exit-codes.ts'
import { checkedId } from '../options.ts'
import { note, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  token?: string
}

/** Where previews are reached, and the host name of this one. */
interface Upstream {
  url: URL
  host: string
  token: string | undefined
}

export function addForward(program: Command): void {
  program
    .command('forward')
    .description('serve a port of a sandbox on this machine: HTTP and WebSockets, no other protocols')
    .argument('<sandbox>')
    .argument('<port>', 'PORT or PORT:LOCAL; LOCAL 0 takes a free one')
    .option('--token <token>', 'the token that the preview demands')
    .action(async (id: string, text: string, _options: Options, command: Command) => {
      const flags = command.optsWithGlobals<Options>()
      const { port, local } = portsOf(text)
      const client = await clientOf(flags)
      const sandbox = await Sandbox.connect(checkedId(id, 'sb-', 'sandbox'), { client })
      const preview = new URL(sandbox.url(port))
      // Names below localhost resolve nowhere else, and the server identifies previews by the name alone. TLS needs the name itself.
      const url = preview.protocol === 'https:' ? preview : new URL(client.url)
      await serve({ url, host: preview.host, token: flags.token }, local)
    })
}

export function portsOf(text: string): { port: number; local: number } {
  const [, port = '', local = port] = /^(\d{1,5})(?::(\d{1,5}))?$/.exec(text) ?? []
  if (port === '' || Number(port) < 1 || Number(port) > 65_535 || Number(local) > 65_535) {
    throw new UsageError(`${JSON.stringify(text)} is no port: it must be PORT or PORT:LOCAL`)
  }
  return { port: Number(port), local: Number(local) }
}

async function serve(upstream: Upstream, local: number): Promise<void> {
  const server = createServer((request, response) => forward(upstream, request, response))
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) =>
    upgrade(upstream, request, socket, head),
  )
  server.listen(local, '127.0.0.1')
  try {
    await once(server, 'listening')
  } catch (error) {
    throw new CliError(`port ${local} of this machine cannot be used: ${(error as Error).message}`, { cause: error })
  }
  const { port } = server.address() as AddressInfo
  await writeLine(`http://127.0.0.1:${port}`)
  note('Ctrl-C ends it')
  await once(server, 'close')
}

function forward(upstream: Upstream, request: IncomingMessage, response: ServerResponse): void {
  const outgoing = ask(upstream, request)
  outgoing.on('response', (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.statusMessage, withoutHost(answer, upstream, request))
    answer.on('error', () => response.destroy())
    answer.pipe(response)
  })
  outgoing.on('error', (error) => {
    if (response.headersSent) response.destroy()
    else
      response.writeHead(502, { 'Content-Type': 'text/plain' }).end(`the server cannot be reached: ${error.message}\n`)
  })
  response.on('close', () => outgoing.destroy())
  request.pipe(outgoing)
}

function upgrade(upstream: Upstream, request: IncomingMessage, socket: Duplex, head: Buffer): void {
  const outgoing = ask(upstream, request)
  socket.on('error', () => outgoing.destroy())
  outgoing.on('error', () => socket.destroy())
  outgoing.on('upgrade', (answer, remote, first) => {
    socket.write(headOf(answer))
    socket.write(first)
    remote.write(head)
    remote.on('error', () => socket.destroy())
    socket.on('error', () => remote.destroy())
    socket.on('close', () => remote.destroy())
    remote.on('close', () => socket.destroy())
    remote.pipe(socket).pipe(remote)
  })
  outgoing.on('response', (answer) => {
    socket.write(headOf(answer))
    answer.pipe(socket)
  })
  outgoing.end()
}

function ask({ url, host, token }: Upstream, request: IncomingMessage) {
  const headers = { ...request.headers, host, ...(token === undefined ? {} : { 'x-oc-preview-token': token }) }
  const { origin } = headers
  // Servers compare the origin with the host.
  if (origin === `http://${request.headers.host}`) headers.origin = `${url.protocol}//${host}`
  const send = url.protocol === 'https:' ? requestHttps : requestHttp
  const { hostname, port, protocol } = url
  return send({
    ...{ hostname: hostname.replace(/^\[|\]$/g, ''), port, protocol, headers },
    ...(protocol === 'https:' ? { servername: hostname } : {}),
    path: request.url,
    method: request.method,
  })
}

/** A redirection to the preview leads back here. */
function withoutHost(answer: IncomingMessage, { url, host }: Upstream, request: IncomingMessage) {
  const { location } = answer.headers
  const there = `${url.protocol}//${host}`
  if (!location?.startsWith(`${there}/`)) return answer.headers
  return { ...answer.headers, location: `http://${request.headers.host}${location.slice(there.length)}` }
}

function headOf({ statusCode, statusMessage, rawHeaders }: IncomingMessage): string {
  const lines = [`HTTP/1.1 ${statusCode} ${statusMessage}`]
  for (let index = 0; index + 1 < rawHeaders.length; index += 2)
    lines.push(`${rawHeaders[index]}: ${rawHeaders[index + 1]}`)
  return `${lines.join('\r\n')}\r\n\r\n`
}
