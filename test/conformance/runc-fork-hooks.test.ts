/** How programs of a runc sandbox notice that they run in a fork, and what runs there before them. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, outputOnce, remove, specOf, startPython, succeed } from './driver-shell.ts'

const file = '/run/atoll/fork-generation'
const hooks = '/etc/atoll/on-fork.d'

/** Says once that a watch of the file, and one of its folder, have seen a change, and when the memory it runs in got another host name. */
const watcher = `
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
inotify = libc.inotify_init()
names = {libc.inotify_add_watch(inotify, b"${file}", 2): "file", libc.inotify_add_watch(inotify, b"/run/atoll", 2): "folder"}
print("ready", flush=True)
seen = set()
while len(seen) < 2:
    data = os.read(inotify, 4096)
    while data:
        watch, _, _, length = struct.unpack_from("iIII", data)
        seen.add(names[watch])
        data = data[16 + length:]
print("seen", *sorted(seen), os.uname().nodename, flush=True)
sys.stdin.read()`

/**
 * Looks again and again at its host name, which is another one in a fork, and then at what must have happened there before. Says how often
 * that had not when it is asked.
 */
const racer = `
import os, sys, threading
name, early, rounds = os.uname().nodename, 0, 0
first = open("${file}").read()
def look():
    global early, rounds
    while True:
        is_fork = os.uname().nodename != name
        if is_fork and (open("${file}").read() == first or os.path.exists("${hooks}") and not os.path.exists("/root/hooked")): early += 1
        if is_fork: rounds += 1
threading.Thread(target=look, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin: print(line.strip(), early, rounds > 0, flush=True)`

const pythonSetup = `
import ctypes, os, random, secrets, ssl, sys, uuid
c = ctypes.CDLL(None)
own = random.Random(os.urandom(16))
def reseeded():
    ssl.RAND_add(os.urandom(32), 32)
    return ssl.RAND_bytes(16)`

/** Programs that draw something for each line they read, with names for the table in `docs/internals/checkpoints.md`. */
const generators: Record<string, { argv: string[]; repeats: boolean }> = {
  ...Object.fromEntries(
    Object.entries({
      'random.random()': { draw: 'random.random()', repeats: true },
      'a generator with a seed from os.urandom()': { draw: 'own.random()', repeats: true },
      'os.urandom()': { draw: 'os.urandom(16)', repeats: false },
      'uuid.uuid4()': { draw: 'uuid.uuid4()', repeats: false },
      'secrets.token_hex()': { draw: 'secrets.token_hex()', repeats: false },
      'ssl.RAND_bytes()': { draw: 'ssl.RAND_bytes(16)', repeats: true },
      'random.SystemRandom()': { draw: 'random.SystemRandom().random()', repeats: false },
      'rand() of the C library': { draw: 'c.rand()', repeats: true },
      'random() of the C library': { draw: 'c.random()', repeats: true },
      'arc4random() of the C library': { draw: 'c.arc4random()', repeats: false },
      'RAND_bytes() after RAND_add()': { draw: 'reseeded()', repeats: false },
    }).map(([name, { draw, repeats }]) => {
      const program = `${pythonSetup}\nfor line in sys.stdin: print(line.strip(), ${draw}, flush=True)`
      return [`Python ${name}`, { argv: ['/usr/bin/python3', '-c', program], repeats }]
    }),
  ),
  ...Object.fromEntries(
    Object.entries({
      'Math.random()': true,
      'crypto.randomUUID()': true,
      'crypto.randomBytes(16).toString("hex")': true,
      'crypto.webcrypto.getRandomValues(new Uint8Array(4)).join()': true,
      'crypto.randomInt(2 ** 40)': true,
    }).map(([draw, repeats]) => {
      const program = `require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => console.log(line, ${draw}))`
      return [`Node ${draw}`, { argv: ['/usr/local/bin/node', '-e', program], repeats }]
    }),
  ),
  'Perl rand()': { argv: ['/usr/bin/perl', '-ne', '$| = 1; chomp; print "$_ ", rand(), "\\n"'], repeats: true },
  'openssl rand that starts in the fork': {
    argv: ['/bin/bash', '-c', 'while read -r line; do echo $line $(openssl rand -hex 16); done'],
    repeats: false,
  },
  'a Node that starts in the fork': {
    argv: ['/bin/bash', '-c', `while read -r line; do echo $line $(node -p 'crypto.randomUUID()'); done`],
    repeats: false,
  },
  ...Object.fromEntries(
    Object.entries({ RANDOM: true, SRANDOM: false }).map(([name, repeats]) => {
      const program = `while read -r line; do echo $line $${name}$${name}; done`
      return [`bash $${name}`, { argv: ['/bin/bash', '-c', program], repeats }]
    }),
  ),
}

describe('the forks of a runc sandbox', () => {
  const runc = useRunc()
  const { guest } = runc

  const generation = async (id: string): Promise<string> => {
    const text = await succeed(guest(id), `su sandbox -c 'cat ${file}'`)
    assert.match(text, /^[0-9a-f]{32}$/)
    return text
  }
  const fork = async (checkpointId: string): Promise<string> => {
    const id = freshId('sb')
    await runc.driver.create(specOf(id, { from: { checkpointId } }))
    return id
  }
  /** Makes a hook; the first argument is its name. */
  const hook = (id: string, name: string, script: string) =>
    succeed(
      guest(id),
      `mkdir -p ${hooks}; printf '%s\\n' '#!/bin/sh' '${script}' > ${hooks}/${name}; chmod 755 ${hooks}/${name}`,
    )
  const ask = async (id: string, process: string, word: string): Promise<string> => {
    const attachment = await guest(id).attach(process)
    await attachment.write(Buffer.from(`${word}\n`))
    attachment.close()
    const said = await outputOnce(guest(id), process, (text) => new RegExp(`^${word} .*\n`, 'm').test(text))
    return new RegExp(`^${word} (.*)$`, 'm').exec(said)?.[1] ?? assert.fail('it said nothing')
  }

  test('generation: each sandbox has its own, and keeps it until it is restored in place', async () => {
    const { driver } = runc
    const [id, full, disk] = [await create(driver), freshId('cp'), freshId('cp')]
    const first = await generation(id)
    await driver.checkpoint(id, full, 'full')
    await driver.checkpoint(id, disk, 'disk_only')
    const child = await fork(full)
    const next = freshId('cp')
    await driver.checkpoint(child, next, 'full')
    const [grandchild, cold, other] = [await fork(next), await fork(disk), await create(driver)]
    assert.equal(await generation(id), first)
    await driver.hibernate(id)
    await driver.wake(specOf(id))
    assert.equal(await generation(id), first)
    await driver.restart(specOf(id))
    assert.equal(await generation(id), first)
    const seen = [first]
    for (const checkpointId of [full, disk]) {
      await driver.restore(specOf(id), checkpointId)
      seen.push(await generation(id))
      await driver.hibernate(id)
      await driver.wake(specOf(id))
      assert.equal(await generation(id), seen.at(-1))
    }
    for (const one of [child, grandchild, cold, other]) seen.push(await generation(one))
    assert.equal(new Set(seen).size, seen.length)
    await remove(driver, id, child, grandchild, cold, other, full, disk, next)
  })

  test('generation: watches see it change, and no process runs in a fork before', async () => {
    const { driver } = runc
    const [id, cp] = [await create(driver), freshId('cp')]
    for (const [name, program] of Object.entries({ watcher, racer })) {
      await guest(id).spawn({ id: name, argv: ['/usr/bin/python3', '-c', program], envs: {}, stdin: true })
      await outputOnce(guest(id), name, (text) => text.includes('ready'))
    }
    await driver.checkpoint(id, cp, 'full')
    const forks = await Promise.all([fork(cp), fork(cp), fork(cp)])
    for (const one of forks) {
      const said = await outputOnce(guest(one), 'watcher', (text) => text.includes('seen'))
      assert.match(said, new RegExp(`^seen file folder ${one}$`, 'm'))
      assert.equal(await ask(one, 'racer', 'now'), '0 True')
    }
    await remove(driver, id, cp, ...forks)
  })

  test('generation: what a sandbox puts in the place of the file is replaced, not followed', async () => {
    const { driver } = runc
    for (const trick of [`ln -s /etc/passwd ${file}`, `mkfifo ${file}`, `touch ${file}; chmod 0 ${file} /run/atoll`]) {
      const [id, cp] = [await create(driver), freshId('cp')]
      const first = await generation(id)
      const before = await succeed(guest(id), `rm ${file}; ${trick}; md5sum < /etc/passwd`)
      await driver.checkpoint(id, cp, 'full')
      const one = await fork(cp)
      const [kind, text] = (await succeed(guest(one), `stat -c %F ${file}; cat ${file}`)).split('\n')
      assert.equal(kind, 'regular file', trick)
      assert.match(text ?? '', /^[0-9a-f]{32}$/, trick)
      assert.notEqual(text, first, trick)
      assert.equal(await succeed(guest(one), 'md5sum < /etc/passwd'), before, trick)
      await remove(driver, id, one, cp)
    }
  })

  test('generation: what a sandbox puts in the place of a folder leads nowhere, and the fork runs', async () => {
    const { driver } = runc
    const aside = 'rm -rf /run/atoll; mv /run /elsewhere; mkdir -p /etc/atoll'
    for (const trick of [
      'rm -rf /run/atoll; ln -s /etc /run/atoll',
      'rm -rf /run/atoll; touch /run/atoll',
      'rm -rf /run/atoll; mkfifo /run/atoll',
      `rm ${file}; mkdir -p ${file}/full`,
      `${aside}; ln -s /etc /run`,
      `${aside}; mkfifo /run`,
    ]) {
      const [id, cp] = [await create(driver), freshId('cp')]
      const look = "find /etc /run /elsewhere -name 'fork-generation*' -o -name full; ls -A /etc | md5sum"
      const before = await succeed(guest(id), `${trick}; ${look} 2>/dev/null`)
      await driver.checkpoint(id, cp, 'full')
      const one = await fork(cp)
      assert.equal(await succeed(guest(one), `${look} 2>/dev/null`), before, trick)
      await remove(driver, id, one, cp)
    }
  })

  test('generation: it changes where the source has filled its disk', async () => {
    const { driver } = runc
    const [id, full, disk] = [await create(driver), freshId('cp'), freshId('cp')]
    const seen = [await generation(id)]
    const isFull =
      'mkdir /root/full; ! dd if=/dev/zero of=/root/full/big bs=1M 2>&1; ! touch /root/full/more 2>/dev/null'
    assert.match(await succeed(guest(id), isFull), /quota exceeded|No space left/)
    await driver.checkpoint(id, full, 'full')
    await driver.checkpoint(id, disk, 'disk_only')
    const forks = [await fork(full), await fork(disk)]
    for (const one of forks) seen.push(await generation(one))
    for (const checkpointId of [full, disk]) {
      await driver.restore(specOf(id), checkpointId)
      seen.push(await generation(id))
    }
    assert.equal(new Set(seen).size, 5)
    await remove(driver, id, ...forks, full, disk)
  })

  test('hooks: they run first, in order, as root, with the generation, in forks and restores in place alone', async () => {
    const { driver } = runc
    const [id, full, disk] = [await create(driver), freshId('cp'), freshId('cp')]
    const note = 'echo $(basename $0) $(id -u) $ATOLL_FORK_GENERATION >> /root/ran'
    await hook(id, '10-first', `${note}; sleep 0.3`)
    await hook(id, '20-second', `${note}; touch /root/hooked`)
    await hook(id, '30-not', note)
    await succeed(guest(id), `chmod 644 ${hooks}/30-not; touch /root/ran`)
    await guest(id).spawn({ id: 'racer', argv: ['/usr/bin/python3', '-c', racer], envs: {}, stdin: true })
    await outputOnce(guest(id), 'racer', (text) => text.includes('ready'))
    await driver.checkpoint(id, full, 'full')
    await driver.checkpoint(id, disk, 'disk_only')
    const [child, cold] = [await fork(full), await fork(disk)]
    const ran = async (one: string) => {
      const own = await generation(one)
      assert.equal(await succeed(guest(one), 'cat /root/ran'), `10-first 0 ${own}\n20-second 0 ${own}`)
      assert.equal(driver.hookFailure?.(one), undefined)
    }
    for (const one of [child, cold]) await ran(one)
    assert.equal(await ask(child, 'racer', 'now'), '0 True')
    // What was held back is saved and forked like anything else.
    const next = freshId('cp')
    await succeed(guest(child), 'rm /root/ran /root/hooked')
    await driver.checkpoint(child, next, 'full')
    const grandchild = await fork(next)
    await ran(grandchild)
    assert.equal((await ask(grandchild, 'racer', 'again')).split(' ')[1], 'True')
    await driver.hibernate(child)
    await driver.wake(specOf(child))
    await driver.restart(specOf(child))
    assert.equal(await succeed(guest(child), 'ls /root'), '')
    for (const checkpointId of [full, disk]) {
      await driver.restore(specOf(id), checkpointId)
      await ran(id)
    }
    await remove(driver, id, child, cold, grandchild, full, disk, next)
  })

  test('hooks: one that kills a process ends it before it draws anything in the fork', async () => {
    const { driver } = runc
    const [id, cp] = [await create(driver), freshId('cp')]
    const drawing = `
import os, random
name = os.uname().nodename
print("ready", flush=True)
while os.uname().nodename == name: pass
open("/root/drawn", "w").write(str(random.random()))
while True: pass`
    await guest(id).spawn({ id: 'drawing', argv: ['/usr/bin/python3', '-c', drawing], envs: {} })
    await outputOnce(guest(id), 'drawing', (text) => text.includes('ready'))
    const kept = freshId('cp')
    await driver.checkpoint(id, kept, 'full')
    await hook(id, '10-kill', 'exec pkill -KILL -x python3')
    await driver.checkpoint(id, cp, 'full')
    // Without the hook it does draw.
    const [without, one] = [await fork(kept), await fork(cp)]
    await succeed(guest(without), 'until [ -s /root/drawn ]; do sleep 0.05; done')
    assert.equal((await guest(one).process('drawing', 60_000)).running, false)
    assert.equal(await succeed(guest(one), 'ls /root'), '')
    assert.equal(driver.hookFailure?.(one), undefined)
    await remove(driver, id, without, one, cp, kept)
  })

  test('hooks: one that fails, or takes too long, is told, and costs neither the others nor the fork', async () => {
    const { driver } = runc
    const [id, cp] = [await create(driver), freshId('cp')]
    await hook(id, '10-fails', 'echo oh no >&2; exit 3')
    await hook(id, '20-hangs', 'exec sleep 1000')
    await hook(id, '30-missing', 'true')
    await succeed(guest(id), `sed -i 1s,sh,nothing, ${hooks}/30-missing`)
    await hook(id, '40-runs', 'touch /root/hooked')
    await startPython(guest(id), 'loop', 'print("ready", flush=True); input()')
    await driver.checkpoint(id, cp, 'full')
    const one = await fork(cp)
    const failure = driver.hookFailure?.(one) ?? assert.fail('nothing has failed')
    assert.match(
      failure,
      /^10-fails: exit 3, oh no; 20-hangs: it ran longer than 10000 ms and was ended; 30-missing: .*\/bin\/nothing/,
    )
    assert.doesNotMatch(failure, /40-runs/)
    assert.equal(await succeed(guest(one), 'ls /root; pgrep -c sleep || true'), 'hooked\n0')
    assert.equal((await guest(one).process('loop')).running, true)
    await driver.restart(specOf(one))
    assert.equal(driver.hookFailure?.(one), undefined)
    await remove(driver, id, one, cp)
  })
  test('random numbers: which generators draw the same in two forks', async () => {
    const { driver } = runc
    const [id, cp] = [await create(driver, { memoryMb: 1024 }), freshId('cp')]
    const names = Object.keys(generators)
    for (const [index, { argv }] of Object.values(generators).entries()) {
      const envs = { PATH: '/usr/local/bin:/usr/bin:/bin' }
      await guest(id).spawn({ id: `generator-${index}`, argv, envs, stdin: true })
      // A generator takes its seed when it is first asked.
      await ask(id, `generator-${index}`, 'first')
    }
    await driver.checkpoint(id, cp, 'full')
    const forks = [await fork(cp), await fork(cp)]
    const repeated: Record<string, boolean> = {}
    for (const [index, name] of names.entries()) {
      const [drawn, drawnToo] = await Promise.all(forks.map((one) => ask(one, `generator-${index}`, 'next')))
      repeated[name] = drawn === drawnToo
    }
    assert.deepEqual(repeated, Object.fromEntries(names.map((name) => [name, generators[name]?.repeats])))
    await remove(driver, id, cp, ...forks)
  })
})
