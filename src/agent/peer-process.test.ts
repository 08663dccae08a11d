import assert from 'node:assert/strict'
import { spawn, type ChildProcessByStdio } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import type { Writable } from 'node:stream'
import { after, before, test } from 'node:test'
import { isFromProgram } from './peer-process.ts'

/** Connects in several ways, one a line of its input, and keeps each connection open. */
const program = `
import os, socket, subprocess, sys, time
port = int(sys.argv[1])
again = [sys.executable, '-c', os.environ['SCRIPT'], str(port)]
def spawn(way, **options):
    child = subprocess.Popen(again, stdin=subprocess.PIPE, text=True, **options)
    child.stdin.write(way + '\\n'); child.stdin.flush()
    return child
kept = []
for line in sys.stdin:
    way = line.strip()
    if way == 'ipv4': kept.append(socket.create_connection(('127.0.0.1', port)))
    if way == 'other address': kept.append(socket.create_connection(('127.0.0.1', port), source_address=('127.9.8.7', 0)))
    if way == 'ipv6':
        s = socket.socket(socket.AF_INET6); s.connect(('::ffff:127.0.0.1', port)); kept.append(s)
    if way == 'child': kept.append(spawn('ipv4'))
    if way == 'grandchild': kept.append(spawn('child'))
    if way == 'command': kept.append(spawn('ipv4', start_new_session=True))
    if way == 'child of a command': kept.append(spawn('child', start_new_session=True))
    if way == 'command that joins': kept.append(spawn('join %d' % os.getpgid(0), start_new_session=True))
    if way.startswith('join '):
        try: os.setpgid(0, int(way[5:]))
        except PermissionError: pass
        kept.append(socket.create_connection(('127.0.0.1', port)))
    if way == 'orphan':
        if os.fork() == 0:
            parent = os.getpid()
            if os.fork() == 0:
                while os.getppid() == parent: time.sleep(0.01)
                kept.append(socket.create_connection(('127.0.0.1', port)))
                time.sleep(3600)
            os._exit(0)
        os.wait()
`

const server = createServer()
let port: number
let leader: ChildProcessByStdio<Writable, null, null>

before(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  port = (server.address() as AddressInfo).port
  leader = spawn('python3', ['-c', program, String(port)], {
    detached: true,
    stdio: ['pipe', 'ignore', 'inherit'],
    env: { ...process.env, SCRIPT: program },
  })
})
after(async () => {
  // Commands end with the end of their input.
  process.kill(-leader.pid!, 'SIGKILL')
  await once(leader, 'exit')
  server.close()
})

async function connection(how: string): Promise<Socket> {
  const accepted = once(server, 'connection') as Promise<[Socket]>
  leader.stdin.write(`${how}\n`)
  const [socket] = await accepted
  socket.on('error', () => {})
  return socket
}

const served = ['ipv4', 'ipv6', 'other address', 'child', 'grandchild']
const refused = ['command', 'child of a command', 'command that joins', 'orphan']

for (const how of [...served, ...refused]) {
  const isServed = served.includes(how)
  test(`peer process: ${how}: ${isServed ? 'it is the program' : 'it is not the program'}`, async () => {
    const socket = await connection(how)
    assert.equal(isFromProgram(socket, leader.pid!), isServed)
    socket.destroy()
  })
}

test('peer process: a stranger is not the program, nor is one that has gone, nor one of a program that has ended', async () => {
  const accepted = once(server, 'connection') as Promise<[Socket]>
  const client = connect(port, '127.0.0.1')
  const [socket] = await accepted
  assert.equal(isFromProgram(socket, leader.pid!), false)
  assert.equal(isFromProgram(socket, process.pid), true)
  const ended = spawn('true')
  await once(ended, 'exit')
  assert.equal(isFromProgram(socket, ended.pid!), false)
  client.destroy()
  socket.resume()
  await once(socket, 'close')
  assert.equal(isFromProgram(socket, process.pid), false)
})
