import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { access, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer, text } from 'node:stream/consumers'
import { after, before, describe, test } from 'node:test'
import { setImmediate as nextRound, setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import { isServiceError } from '../../errors.ts'
import { CommandError, run } from '../command.ts'
import { startTicksOf } from '../process.ts'
import { Hostd, RelayUnavailable } from './index.ts'

const toolPath = join(process.env['ATOLL_IMAGE_DIR'] || '/var/lib/atoll/images', 'hostd/atoll-hostd')

describe('hostd', () => {
  let folder: string
  let socket: string
  let hostd: Hostd
  const logged: string[] = []
  const guests: Server[] = []

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'atoll-hostd-'))
    socket = join(folder, 'hostd.sock')
    hostd = new Hostd({ socket, log: (message) => void logged.push(message) })
    await hostd.open(toolPath)
  })

  after(async () => {
    await hostd.close()
    for (const guest of guests) guest.close()
    await rm(folder, { recursive: true })
  })

  /** Something that listens where a guest would, and the path of its socket. */
  async function listen(serve: (socket: Socket) => void): Promise<string> {
    const guest = createServer({ allowHalfOpen: true }, (connection) => {
      connection.on('error', () => undefined)
      serve(connection)
    })
    const path = join(folder, `guest-${guests.length}.sock`)
    guests.push(guest)
    guest.listen(path)
    await once(guest, 'listening')
    return path
  }

  /** Where many connect at once the queue of the guest is full for a moment, and one that was refused may still be counted. */
  async function connectSoon(path: string): Promise<Socket> {
    for (;;) {
      try {
        return await hostd.connect(path)
      } catch (error) {
        const isFull = ['EAGAIN', 'ENOBUFS'].includes((error as NodeJS.ErrnoException).code ?? '')
        if (!isFull && !(error instanceof RelayUnavailable)) throw error
        await sleep(5)
      }
    }
  }

  /** Looks each time the event loop has gone round: it is started again soon, which a look after a pause may miss. */
  async function stopsServing(one: Hostd): Promise<void> {
    while (one.isServing) await nextRound()
  }

  async function pidOfHostd(): Promise<number> {
    return Number(await hostd.run(['sh', '-c', 'echo $PPID']))
  }

  test('its socket is for root alone', async () => {
    assert.equal((await stat(socket)).mode & 0o777, 0o600)
  })

  test('a connection carries bytes and their end both ways', async () => {
    const path = await listen((guest) => void buffer(guest).then((heard) => guest.end(heard.toReversed())))
    const question = Buffer.from(Array.from({ length: 1_000_000 }, (_, index) => index % 251))
    const connection = await hostd.connect(path)
    connection.end(question)
    assert.ok((await buffer(connection)).equals(question.toReversed()))
  })

  test('a port of another network namespace is connected to, and bytes and ends pass', async (t) => {
    const program = `import socket; s = socket.create_server(('127.0.0.1', 3000)); print(flush=True); c, _ = s.accept(); c.sendall(c.recv(9)[::-1])`
    const script = `ip link set lo up && exec python3 -c "$0"`
    const machine = spawn('unshare', ['-n', 'sh', '-c', script, program], { stdio: ['ignore', 'pipe', 'inherit'] })
    t.after(() => machine.kill('SIGKILL'))
    await once(machine.stdout, 'data')
    const sandbox = { pid: machine.pid ?? 0, startTicks: startTicksOf(machine.pid ?? 0) }
    await assert.rejects(hostd.connectInside(sandbox, 3001), { code: 'ECONNREFUSED' })
    await assert.rejects(hostd.connectInside({ ...sandbox, startTicks: 1 }, 3000), { code: 'ESRCH' })
    const connection = await hostd.connectInside(sandbox, 3000)
    connection.write('question')
    assert.equal(await text(connection), 'noitseuq')
  })

  test('the end of a process is told when it comes', async () => {
    const program = spawn('sleep', ['600'])
    const identity = { pid: program.pid ?? 0, startTicks: startTicksOf(program.pid ?? 0) }
    let isTold = false
    const ends = hostd.awaitEnd(identity).finally(() => (isTold = true))
    assert.equal(await hostd.awaitEnd({ ...identity, startTicks: 1 }), true)
    assert.equal(isTold, false)
    program.kill('SIGKILL')
    assert.equal(await ends, true)
    assert.equal(await hostd.awaitEnd(identity), true)
  })

  test('programs do not have the channel on which sockets come', async () => {
    const seen = await hostd.run(['sh', '-c', 'env; ls -l /proc/self/fd | grep -c socket || true'])
    assert.doesNotMatch(seen, /NODE_CHANNEL/)
    assert.match(seen, /\n0\n$/)
  })

  test('a guest that sends first loses no byte', async () => {
    const path = await listen((guest) => guest.end('first'))
    assert.equal(await text(await hostd.connect(path)), 'first')
  })

  test('a connection that is destroyed is closed for the guest', async () => {
    const { promise: closed, resolve } = Promise.withResolvers<void>()
    const path = await listen((guest) => guest.resume().once('end', resolve))
    const connection = await hostd.connect(path)
    connection.write('question')
    connection.destroy()
    await closed
  })

  test('a missing guest and one that does not listen are reported by the code of connect', async () => {
    await assert.rejects(hostd.connect(join(folder, 'none.sock')), { code: 'ENOENT' })
    const path = await listen(() => undefined)
    guests.pop()?.close()
    await assert.rejects(hostd.connect(path), (error: NodeJS.ErrnoException) =>
      ['ENOENT', 'ECONNREFUSED'].includes(error.code ?? ''),
    )
    await assert.rejects(hostd.connect(`/${'long'.repeat(30)}`), RelayUnavailable)
  })

  test('an invalid request on its socket ends that connection alone', async () => {
    const pid = await pidOfHostd()
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 300 }), async (bytes) => {
        const connection = connect({ path: socket })
        connection.on('error', () => undefined)
        const closed = new Promise((resolve) => connection.once('close', resolve))
        connection.resume().end(bytes)
        await closed
      }),
    )
    assert.equal(await pidOfHostd(), pid)
  })

  test('after a kill it is started again with a line in the log; its connections end and its programs are lost', async () => {
    const path = await listen((guest) => guest.pipe(guest))
    const connection = await hostd.connect(path)
    const pidFile = join(folder, 'lost.pid')
    const isTold = hostd.awaitEnd({ pid: process.pid, startTicks: startTicksOf('self') })
    const lost = hostd.run(['sh', '-c', `echo $$ > ${pidFile}; exec sleep 600`]).catch((error: unknown) => error)
    while ((await readFile(pidFile, 'utf8').catch(() => '')) === '') await sleep(1)
    const pid = await pidOfHostd()
    process.kill(pid, 'SIGKILL')
    await once(connection.resume(), 'close')
    const error = await lost
    assert.ok(error instanceof CommandError)
    assert.equal(error.outcome, 'is lost, as hostd has ended')
    process.kill(Number(await readFile(pidFile, 'utf8')))
    while (!hostd.isServing) await sleep(1)
    assert.equal(await isTold, false)
    assert.deepEqual(logged, ['atoll-hostd was killed by SIGKILL; it is started again'])
    const again = await pidOfHostd()
    assert.notEqual(again, pid)
    assert.notEqual(again, process.pid)
    const next = await hostd.connect(path)
    next.end('question')
    assert.equal(await text(next), 'question')
  })

  test('a guest has a bounded number of connections', async () => {
    const path = await listen((guest) => void guest.resume())
    const connections = await Promise.all(Array.from({ length: 1_088 }, () => connectSoon(path)))
    await assert.rejects(hostd.connect(path), { code: 'ENOBUFS' })
    const other = await listen((guest) => guest.end('still there'))
    assert.equal(await text(await hostd.connect(other)), 'still there')
    for (const connection of connections) connection.destroy()
    await hostd.cut(path)
    const again = await hostd.connect(path)
    again.destroy()
  })

  test('a cut ends the connections to one guest on both sides', async () => {
    const ended = Promise.withResolvers<void>()
    const path = await listen((guest) => guest.resume().once('end', ended.resolve))
    const other = await hostd.connect(await listen((guest) => guest.pipe(guest)))
    const connection = await hostd.connect(path)
    const closed = new Promise((resolve) => connection.resume().once('close', resolve))
    await hostd.cut(path)
    await Promise.all([ended.promise, closed])
    other.end('still there')
    assert.equal(await text(other), 'still there')
  })

  test('close waits for its programs and does not start it again', async () => {
    const path = join(folder, 'again.sock')
    const other = new Hostd({ socket: path, log: () => undefined })
    await other.open(toolPath)
    const output = other.run(['sh', '-c', 'sleep 0.3; echo done'])
    await other.close()
    assert.equal(await output, 'done\n')

    await other.open(toolPath)
    for (const starts of [other.starts, other.starts + 1]) {
      while (other.starts < starts || !other.isServing) await sleep(1)
      process.kill(Number(await run(['pgrep', '--full', `serve --socket ${path}`])), 'SIGKILL')
      await stopsServing(other)
    }
    await other.close()
    await other.open(toolPath)
    await sleep(500)
    assert.match(await run(['pgrep', '--full', `serve --socket ${path}`]), /^\d+\n$/)
    await other.close()
  })

  test('close leaves no process and no socket, and commands run without it', async () => {
    const other = new Hostd({ socket: join(folder, 'other.sock'), log: () => undefined })
    await other.open(toolPath)
    await access(join(folder, 'other.sock'))
    await other.close()
    await assert.rejects(access(join(folder, 'other.sock')))
    await assert.rejects(other.connect('/any'), RelayUnavailable)
    assert.equal(await other.run(['echo', 'here']), 'here\n')
  })

  test('a secret is never the argument of a process: without a resident hostd it is refused', async () => {
    const content = Buffer.from('word').toString('hex')
    const place = { process: { pid: process.pid, startTicks: startTicksOf('self') }, owner: 0, target: '/a', hide: '/' }
    const request = { op: 'attach-secret', ...place, content, mode: 0o400, uid: 0, gid: 0 } as const
    const other = new Hostd({ socket: join(folder, 'secret.sock'), log: () => undefined })
    await other.open(toolPath)
    // This process has no mounts of its own.
    await assert.rejects(other.runTool(request), (error: unknown) => {
      assert.ok(error instanceof CommandError && !JSON.stringify([error, error.message, error.argv]).includes(content))
      return true
    })
    process.kill(Number(await run(['pgrep', '--full', `serve --socket ${join(folder, 'secret.sock')}`])), 'SIGKILL')
    await stopsServing(other)
    await assert.rejects(other.runTool(request), (error: unknown) => isServiceError(error, 'unavailable'))
    await other.close()
  })

  test('a program that cannot start is refused with the reason', async () => {
    const none = new Hostd({ socket: join(folder, 'none.sock'), log: () => undefined })
    await assert.rejects(none.open('/no/such/program'), (error: unknown) => {
      assert.ok(isServiceError(error, 'unavailable'))
      assert.match(error.message, /^\/no\/such\/program cannot be started: .*ENOENT/)
      return true
    })
    const liar = join(folder, 'liar')
    await writeFile(liar, "#!/bin/sh\nprintf '\\377\\377\\377\\377nonsense'\nexec cat >/dev/null\n", { mode: 0o755 })
    await assert.rejects(none.open(liar), /liar was killed by SIGKILL$/)
    const nowhere = new Hostd({ socket: '/no/such/folder/hostd.sock', log: () => undefined })
    await assert.rejects(nowhere.open(toolPath), /ended with status 1/)
  })
})
