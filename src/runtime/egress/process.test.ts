import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { setImmediate as tick } from 'node:timers/promises'
import { eventually } from '../../lib/testing/eventually.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { Cgroups } from '../cgroups/index.ts'
import { ServiceGroup } from '../cgroups/service-group.ts'
import { run } from '../command.ts'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { makeAuthority } from './authority.ts'
import { egressLimits } from './process.ts'
import { frameFile, put, supervised } from './testing/world.ts'

const self = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }

test('egress process: it starts first, then takes frames in their order, and ends with the close', async (t) => {
  const { egress, noted, said } = await supervised(t)
  await Promise.all([egress.tell(() => put('sb-1')), egress.tell(() => put('sb-2'))])
  await egress.tell(() => undefined)
  await egress.tell(() => ({ op: 'drop', sandbox: 'sb-1' }))
  const frames = await noted()
  assert.deepEqual(
    frames.map(({ op, sandbox }) => [op, sandbox]),
    [
      ['began', undefined],
      ['start', undefined],
      ['put', 'sb-1'],
      ['put', 'sb-2'],
      ['drop', 'sb-1'],
    ],
  )
  assert.equal(egress.unavailable(), undefined)
  await egress.close()
  assert.deepEqual(said, [])
  assert.throws(() => process.kill(frames[0]?.pid ?? 0, 0))
  await refuses(
    egress.tell(() => put('sb-1')),
    'unavailable',
    /the server ends/,
  )
})

test('egress process: it has no capability, no group but its own, and cannot gain any', async (t) => {
  const nobody = { uid: 65_534, gid: 65_534 }
  const folder = await temporaryFolder(t)
  // The user may not enter the folder of its program.
  const program = `${folder}/program`
  await writeFile(program, '#!/bin/sh\ngrep -E "^(Uid|Gid|Groups|Cap|NoNewPrivs)" /proc/self/status >&2\n', {
    mode: 0o755,
  })
  const { said } = await supervised(t, { program: async () => [program], user: async () => nobody })
  await eventually(() => said.some((text) => text.includes('NoNewPrivs')))
  const status = said.join('\n').replaceAll(/[ \t]+/g, ' ')
  for (const name of ['Uid', 'Gid']) assert.ok(status.includes(`${name}: 65534 65534 65534 65534`), status)
  for (const name of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'])
    assert.match(status, new RegExp(`${name}: 0+\\n`))
  assert.match(status, /Groups: ?\n/)
  assert.match(status, /NoNewPrivs: 1/)
})

test('egress process: it is in its control group, with limits, and what is left in the group is ended before the next', async (t) => {
  const name = `/atoll-test-${randomBytes(4).toString('hex')}`
  const group = new ServiceGroup(await Cgroups.find(), name, egressLimits)
  const { egress, seen } = await supervised(t, { group: async () => group })
  await egress.tell(() => put('sb-1'))
  const pid = (await seen('began'))[0]?.pid ?? 0
  assert.equal(await group.holds(pid), true)
  await egress.close()
  assert.equal(await group.holds(pid), false)
})

test('egress process: another one takes the place of one that ends, and is told of all before the start counts', async (t) => {
  const order: string[] = []
  const { egress, seen, said } = await supervised(t, {
    onStarted: async () => {
      await egress.tell(() => put('sb-held'))
      order.push('told')
    },
  })
  await egress.settled
  assert.deepEqual(order, ['told'])
  const first = egress.pid
  process.kill(first ?? 0, 'SIGKILL')
  await eventually(() => order.length === 2)
  assert.notEqual(egress.pid, first)
  assert.equal(egress.unavailable(), undefined)
  assert.equal((await seen('put', 2)).length, 2)
  assert.match(said.join('\n'), /has ended \(SIGKILL\); it is started again/)
})

test('egress process: work that comes while it is started again waits, and what was under way fails', async (t) => {
  const { egress, seen } = await supervised(t)
  await egress.settled
  await refuses(
    egress.tell(() => put('sb-ends')),
    'unavailable',
    /has ended \(status 3\)/,
  )
  await egress.tell(() => put('sb-later'))
  assert.equal((await seen('began', 2)).length, 2)
})

test('egress process: one that does not answer is replaced', async (t) => {
  const { egress, seen } = await supervised(t, { times: { answerMs: 400 } })
  await egress.settled
  await refuses(
    egress.tell(() => put('sb-silent')),
    'unavailable',
    /it does not answer/,
  )
  await eventually(() => egress.tell(() => put('sb-1')).then(() => true))
  await seen('began', 2)
})

test('egress process: a line without an end is not kept, and ends it', async (t) => {
  const { egress, seen } = await supervised(t)
  await egress.settled
  await refuses(
    egress.tell(() => put('sb-endless')),
    'unavailable',
    /a line without an end/,
  )
  await egress.tell(() => put('sb-1'))
  await seen('began', 2)
})

test('egress process: what is no frame is left out, told a few times, and stops nothing', async (t) => {
  const { egress, said, entries } = await supervised(t)
  const begunMs = performance.now()
  await egress.tell(() => put('sb-strange'))
  assert.deepEqual(entries, [])
  // One more may be told every three seconds.
  const saidMax = 20 + (performance.now() - begunMs) / 3000
  assert.ok(said.length >= 1 && said.length <= saidMax, String(said.length))
  await refuses(
    egress.tell(() => put('sb-refused')),
    'unavailable',
    /a plan without sense/,
  )
  await egress.tell(() => put('sb-1'))
})

test('egress process: its reports are passed on, cut to their bounds, and without what they should not have', async (t) => {
  const { egress, said, entries, dropped } = await supervised(t)
  await egress.tell(() => put('sb-tells'))
  assert.deepEqual(entries, [
    {
      ...{ sandbox: 'sb-tells', time: 1, decision: 'denied', protocol: 'tls', port: 443, sent: 1, received: 2, ms: 3 },
      ...{ host: 'h'.repeat(255), path: 'p'.repeat(1024), secrets: ['A'] },
    },
  ])
  assert.deepEqual(dropped, [{ sandbox: 'sb-tells', count: 5, sent: 6, received: 7 }])
  assert.match(said.join('\n'), /a name server does not answer/)
})

test('egress process: one that cannot start says why at once, and is tried again with growing pauses until it can', async (t) => {
  let words = ['fails']
  const frames = await frameFile(t)
  const { egress, said } = await supervised(t, { program: async () => frames.program(...words) })
  await egress.settled
  assert.match(egress.unavailable() ?? '', /status 4: cannot listen: it is taken/)
  await refuses(
    egress.tell(() => put('sb-1')),
    'unavailable',
    /cannot be held: .*it is taken/s,
  )
  await frames.seen('began', 3)
  assert.equal(said.filter((text) => text.startsWith('the egress process cannot be started')).length, 1, 'once')
  words = ['refuses']
  await eventually(() => (egress.unavailable() ?? '').includes('no such port'))
  words = []
  await eventually(() => egress.unavailable() === undefined)
  await egress.tell(() => put('sb-1'))
})

test('egress process: a program or a user that is not there is said, and found once it is', async (t) => {
  let isThere = false
  const frames = await frameFile(t)
  const { egress } = await supervised(t, {
    program: async () => {
      if (!isThere) throw new Error('no atoll-egress: run npm run setup')
      return frames.program()
    },
  })
  await egress.settled
  assert.equal(egress.unavailable(), 'no atoll-egress: run npm run setup')
  isThere = true
  await eventually(() => egress.unavailable() === undefined)
})

test('egress process: a frame that is not wanted any more when its turn comes is not sent', async (t) => {
  const { egress, noted } = await supervised(t)
  let isWanted = true
  const sent = egress.tell(() => (isWanted ? put('sb-gone') : undefined))
  isWanted = false
  await sent
  await tick()
  assert.deepEqual(
    (await noted()).map(({ op }) => op),
    ['began', 'start'],
  )
})

test('egress process: the program makes an authority, and one that is none is refused without its text', async (t) => {
  const { program } = await frameFile(t)
  const { certificate, key } = await makeAuthority(run, self, program())
  assert.match(certificate, /BEGIN CERTIFICATE/)
  assert.match(key, /BEGIN PRIVATE KEY/)
  const broken = [...program(), 'authority', 'broken']
  await refuses(
    makeAuthority(
      (argv, options) => run([...argv.slice(0, -1), ...broken.slice(-2)] as never, options),
      self,
      program(),
    ),
    'unavailable',
    /is no authority$/,
  )
  await refuses(makeAuthority(run, self, ['/no/such/program']), 'unavailable', /makes no authority/)
})
