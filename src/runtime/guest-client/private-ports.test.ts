import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { createGuest } from './index.ts'
import { connectLocally, GuestProcess } from './testing/guest-process.ts'
import { eventually } from '../../lib/testing/eventually.ts'

const machine = await GuestProcess.startForFile()
const { guest } = machine

/**
 * A tree of processes, each with a server that says its part. The part decides what a process starts: in its own group, in a group
 * of its own with a pipe as its input (a program that is spoken to), or with none (a command). `left` has lost the shell that
 * started it, `heir` listens on what its parent has opened.
 */
const tree = `
import ctypes, os, socket, subprocess, sys, time
part = sys.argv[1]
while part == 'left' and os.getppid() == int(sys.argv[2]):
    time.sleep(0.01)
# Nobody outlives the one that started it, however the test ends; of the guest that is a thread, which ends before.
if part != 'agent':
    ctypes.CDLL(None).prctl(1, 9)
def start(part, **options):
    options = {'stdin': subprocess.DEVNULL, **options}
    return subprocess.Popen([sys.executable, '-c', os.environ['TREE'], part], **options)
alone = {'start_new_session': True}
spoken_to = {**alone, 'stdin': subprocess.PIPE}
# A socket of the other family, with a port that nobody else has in either.
mapped = {'family': socket.AF_INET6, 'dualstack_ipv6': True}
server = socket.create_server(('::ffff:127.0.0.1', 0), **mapped) if part == 'helper' else socket.create_server(('127.0.0.1', 0))
print(part, server.getsockname()[1], flush=True)
children = []
if part == 'agent':
    children = [start('helper'), start('program', **spoken_to), start('command', **alone)]
    subprocess.run(['sh', '-c', '"$0" -c "$TREE" left $$ &', sys.executable], stdin=subprocess.DEVNULL)
    shared = socket.create_server(('127.0.0.1', 0))
    print('heir', shared.getsockname()[1], flush=True)
    os.set_inheritable(shared.fileno(), True)
    children += [subprocess.Popen(['setpriv', '--pdeathsig', 'KILL', 'sleep', '60'], stdin=subprocess.DEVNULL, close_fds=False, **alone)]
if part == 'program':
    children = [start('tool-server'), start('its-command', **spoken_to)]
while True:
    client, _ = server.accept()
    client.sendall(part.encode())
    client.close()
`

const parts = ['agent', 'command', 'heir', 'helper', 'its-command', 'left', 'program', 'tool-server']

/** The ports of the tree by part. */
async function plant(id: string, privatePorts?: boolean): Promise<Record<string, number>> {
  const envs = { TREE: tree }
  const argv = ['python3', '-c', tree, 'agent']
  await guest.spawn({ id, argv, envs, ...(privatePorts === undefined ? {} : { privatePorts }) })
  let said: string[][] = []
  await eventually(
    async () => {
      const { stdout } = await guest.output(id)
      said = stdout
        .toString()
        .trim()
        .split('\n')
        .map((line) => line.split(' '))
      return said.length === parts.length
    },
    { what: 'all parts listen' },
  )
  return Object.fromEntries(said.map(([part, port]) => [part, Number(port)]))
}

/** Asks the guest and connects itself, as where a driver can. */
const past = createGuest(() => machine.dial(), { connect: connectLocally })

/** What answers at a port: the part, or the code of the refusal. */
async function at(port: number, from = guest): Promise<string> {
  try {
    const stream = await from.dial(port)
    let text = ''
    for await (const chunk of stream) text += String(chunk)
    return text
  } catch (error) {
    if (isServiceError(error)) return error.code
    throw error
  }
}

async function reached(ports: Record<string, number>, from = guest): Promise<string[]> {
  const open: string[] = []
  for (const [part, port] of Object.entries(ports)) {
    // Nobody accepts where the socket is shared.
    if (part === 'heir') {
      try {
        ;(await from.dial(port)).destroy()
        open.push(part)
      } catch (error) {
        assert.ok(isServiceError(error, 'forbidden'))
      }
      continue
    }
    const answer = await at(port, from)
    if (answer === part) open.push(part)
    else assert.equal(answer, 'forbidden', part)
  }
  return open.toSorted()
}

test('private ports: those of the process, of its group and of the programs that it speaks to are refused; commands serve', async () => {
  const ports = await plant('agent', true)
  assert.deepEqual(await reached(ports), ['command', 'its-command', 'left'])
  assert.deepEqual(await reached(ports, past), ['command', 'its-command', 'left'], 'past the guest')
  await guest.release('agent')
})

test('private ports: a process that did not ask for them has none', async () => {
  const ports = await plant('plain')
  assert.deepEqual(await reached(ports), parts)
  await guest.release('plain')
})

test('private ports: they end with the process, and nothing that listens is told from nothing', async () => {
  const ports = await plant('ends', true)
  const { agent = 0 } = ports
  await guest.signal('ends', 9)
  await eventually(async () => !(await guest.process('ends')).running, { what: 'it has ended' })
  assert.equal(await at(agent), 'nothing_listening')
  const other = `import socket; s = socket.create_server(('127.0.0.1', ${agent})); c, _ = s.accept(); c.sendall(b'other')`
  await guest.spawn({ id: 'other', argv: ['python3', '-c', other], envs: {} })
  await eventually(async () => (await at(agent)) === 'other', { what: 'another one listens there' })
})

test('private ports: a process whose programs come and go all the time costs others no connection', async () => {
  const argv = ['bash', '-c', 'for ((;;)); do sleep 0.01 & sh -c "sleep 0.01" & wait; done']
  await guest.spawn({ id: 'busy', argv, envs: {}, privatePorts: true })
  const server = createServer((socket) => socket.end('served'))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  for (let count = 0; count < 200; count++) assert.equal(await at(port), 'served')
  server.close()
  await guest.release('busy')
})
