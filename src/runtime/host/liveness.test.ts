import assert from 'node:assert/strict'
import { EventEmitter } from 'node:events'
import type { Socket } from 'node:net'
import { test } from 'node:test'
import { setImmediate as later } from 'node:timers/promises'
import { RelayUnavailable } from '../hostd/index.ts'
import type { ProcessIdentity } from '../process.ts'
import { Connections } from './connections.ts'
import { probeGuest, Liveness, livenessTimes, type GuestAnswer } from './liveness.ts'

/** One sandbox whose guest answers as `world` says; each question takes `tookMs`. */
function makeLiveness(given: { answer?: GuestAnswer; tookMs?: number } = {}) {
  const runs = new Map<string, ProcessIdentity>([['sb-1', { pid: 10, startTicks: 1 }]])
  const world = { nowMs: 1_000, answer: 'heard' as GuestAnswer, tookMs: 0, questions: 0, ...given }
  const dead: ProcessIdentity[] = []
  const liveness = new Liveness({
    times: livenessTimes,
    runs: () => runs,
    probe: async () => {
      world.questions += 1
      world.nowMs += world.tookMs
      return world.answer
    },
    declareDead: (_, run) => dead.push(run),
    now: () => world.nowMs,
  })
  /** Looks ten times a second for so long, as the clock of the test has it. */
  const pass = async (ms: number) => {
    for (const until = world.nowMs + ms; world.nowMs < until; world.nowMs += 100) {
      liveness.look()
      await later()
    }
  }
  if (world.answer !== 'heard') liveness.probeNow('sb-1')
  return { runs, world, dead, liveness, pass }
}

test('liveness: a guest that answers is probed once per interval', async () => {
  const { world, dead, pass } = makeLiveness()
  await pass(10 * livenessTimes.intervalMs)
  assert.ok(world.questions === 10 || world.questions === 9, String(world.questions))
  assert.deepEqual(dead, [])
})

test('liveness: a guest that refuses every connection is dead after silenceMs, and not before', async () => {
  const { world, dead, pass, runs } = makeLiveness({ answer: 'silent' })
  await pass(livenessTimes.silenceMs - 1_000)
  assert.deepEqual(dead, [])
  assert.ok(world.questions >= livenessTimes.probesMin)
  await pass(livenessTimes.pauseMs + 1_000)
  assert.deepEqual(dead[0], runs.get('sb-1'))
})

test('liveness: a guest that hangs is dead after probesMin probes', async () => {
  const { world, dead, pass } = makeLiveness({ answer: 'silent', tookMs: livenessTimes.answerMs })
  await pass(livenessTimes.silenceMs - 1_000)
  assert.ok(world.questions <= livenessTimes.probesMin)
  while (dead.length === 0) await pass(100)
  assert.equal(world.questions, livenessTimes.probesMin)
})

test('liveness: one answer ends the silence', async () => {
  const { world, dead, liveness, pass, runs } = makeLiveness()
  const run = runs.get('sb-1') as ProcessIdentity
  for (let round = 0; round < 5; round += 1) {
    world.answer = 'silent'
    liveness.probeNow('sb-1')
    await pass(livenessTimes.silenceMs - 1_000)
    world.answer = 'heard'
    await pass(livenessTimes.pauseMs + 100)
  }
  assert.deepEqual(dead, [])
  assert.equal(liveness.isDead('sb-1', run), false)
})

test('liveness: a server that was suspended declares no guest dead for that', async () => {
  const { world, dead, pass } = makeLiveness({ answer: 'silent', tookMs: 10 * livenessTimes.silenceMs })
  await pass(100)
  assert.equal(world.questions, 1)
  Object.assign(world, { answer: 'heard', tookMs: 0 })
  await pass(livenessTimes.intervalMs)
  assert.deepEqual(dead, [])
})

test('liveness: a probe during other work does not count', async () => {
  const { world, dead, pass } = makeLiveness({ answer: 'unknown' })
  await pass(10 * livenessTimes.silenceMs)
  assert.ok(world.questions > 10)
  assert.deepEqual(dead, [])
})

test('liveness: the silence of one run does not count for the next', async () => {
  const { world, dead, liveness, pass, runs } = makeLiveness({ answer: 'silent' })
  await pass(livenessTimes.silenceMs - 1_000)
  runs.set('sb-1', { pid: 11, startTicks: 2 })
  liveness.probeNow('sb-1')
  await pass(livenessTimes.silenceMs - 1_000)
  assert.deepEqual(dead, [])
  runs.delete('sb-1')
  const { questions } = world
  await pass(livenessTimes.silenceMs)
  assert.equal(world.questions, questions, 'what does not run is not asked')
})

test('probeGuest: unknown when hostd is away, has no room, or was restarted meanwhile', async () => {
  const hostd = {
    isServing: true,
    starts: 1,
    connect: (_path: string): Promise<never> => Promise.reject(new Error('no such guest')),
  }
  const host = {
    names: { guestSocket: (id: string) => id },
    hostd,
    locks: { isLocked: () => false },
    space: { isFull: false },
    connections: new Connections(),
  }
  assert.equal(await probeGuest(host, 'sb-1', 100), 'silent')
  hostd.connect = () => Promise.reject(new RelayUnavailable())
  hostd.isServing = false
  assert.equal(await probeGuest(host, 'sb-1', 100), 'unknown')
  hostd.isServing = true
  hostd.connect = () => Promise.reject(Object.assign(new Error('no room'), { code: 'ENOBUFS' }))
  assert.equal(await probeGuest(host, 'sb-1', 100), 'unknown')
  hostd.connect = async () => {
    hostd.starts += 1
    throw new Error('it ended')
  }
  assert.equal(await probeGuest(host, 'sb-1', 100), 'unknown')
})

test('probeGuest: a guest is asked though its sandbox has all the connections that it may', async () => {
  let asked = 0
  const hostd = {
    isServing: true,
    starts: 1,
    connect: (): Promise<never> => {
      asked += 1
      return Promise.reject(new Error('no such guest'))
    },
  }
  const connections = new Connections()
  const host = {
    names: { guestSocket: (id: string) => id },
    hostd,
    locks: { isLocked: () => false },
    space: { isFull: false },
    connections,
  }
  for (let index = 0; index < 1024; index += 1)
    await connections.open('sb-1', async () => new EventEmitter() as unknown as Socket)
  assert.equal(await probeGuest(host, 'sb-1', 100), 'silent')
  assert.equal(asked, 1)
})
