import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { type Journal, noteConnection } from './journal.ts'
import type { NameServer } from './names.ts'
import { ports } from './places.ts'
import type { Served } from './web.ts'

/** What is neither HTTP nor DNS: servers that speak first, servers of lines, datagrams, DNS over TLS. */
export async function startWires(journal: Journal, names: NameServer, { cert, key, contextOf }: Served): Promise<void> {
  await lines(journal, ports.ssh, 'SSH-2.0-OpenSSH_9.2p1 Test\r\n')
  await lines(journal, ports.lines, '')
  await ftp(journal)
  for (const port of [ports.udp, ports.https]) await datagrams(journal, port)
  const overTls = createTlsServer(
    { cert, key, ALPNProtocols: ['dot'], SNICallback: (sni, give) => give(null, contextOf(sni)) },
    (connection) => {
      journal.add({ kind: 'tls', port: ports.dnsOverTls, sni: connection.servername || '', alpn: 'dot' })
      names.serveStream(connection, 'tls')
    },
  )
  overTls.on('connection', (connection: Socket) => noteConnection(journal, connection))
  overTls.on('tlsClientError', () => undefined)
  overTls.listen(ports.dnsOverTls)
  await once(overTls, 'listening')
}

/** Greets, and gives each line back. */
async function lines(journal: Journal, port: number, greeting: string): Promise<void> {
  await tcp(journal, port, greeting, (line) => `echo ${line}\r\n`)
}

async function ftp(journal: Journal): Promise<void> {
  await tcp(journal, ports.ftp, '220 test FTP\r\n', (line) => {
    if (line.startsWith('USER')) return '331 password\r\n'
    return line.startsWith('PASS') ? '230 welcome\r\n' : '502 no\r\n'
  })
}

async function tcp(journal: Journal, port: number, greeting: string, answer: (line: string) => string): Promise<void> {
  const server = createServer((connection) => {
    noteConnection(journal, connection)
    connection.on('error', () => connection.destroy())
    if (greeting !== '') connection.write(greeting)
    let rest = ''
    connection.on('data', (data: Buffer) => {
      const [last = '', ...whole] = (rest + data.toString('latin1')).split('\n').toReversed()
      rest = last
      for (const line of whole.toReversed()) {
        journal.add({ kind: 'line', port, data: line.trimEnd() })
        connection.write(answer(line.trimEnd()))
      }
    })
  })
  server.listen(port)
  await once(server, 'listening')
}

async function datagrams(journal: Journal, port: number): Promise<void> {
  const socket = createSocket('udp4')
  socket.on('message', (data, peer) => {
    journal.add({ kind: 'udp', port, data: data.toString('latin1') })
    socket.send(data, peer.port, peer.address)
  })
  socket.bind(port)
  await once(socket, 'listening')
}
