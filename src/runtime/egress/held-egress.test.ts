import assert from 'node:assert/strict'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'
import { eventually } from '../../lib/testing/eventually.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import type { EgressState, StatedEgress } from '../../sandbox/ports/egress.ts'
import { run } from '../command.ts'
import { Subnet } from '../network/index.ts'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { HeldEgress } from './held-egress.ts'
import { fakeOptions, frameFile } from './testing/world.ts'

const owner = { pid: 1, startTicks: 1 }
const one = { id: 'sb-1', slot: 1 }
const subnet = new Subnet('10.200.0.0/24')

function stated(state: EgressState, connections_max = 1): StatedEgress {
  return state === 'open' ? { state } : { state, plan: { layers: [], secrets: [], connections_max } }
}

/** One whose network and process note what they are told, in one order. */
async function makeHeld(t: TestContext, words: string[] = []) {
  const folder = await temporaryFolder(t)
  await mkdir(`${folder}/sb-1`)
  const frames = await frameFile(t)
  const moves: string[] = []
  const states = new Map<number, EgressState>()
  const move = async (slot: number, state: EgressState) => {
    states.set(slot, state)
    moves.push(`${slot} ${state}`)
  }
  const answers = new Map<string, StatedEgress | Error | Promise<StatedEgress>>()
  const asked: string[] = []
  const said: string[] = []
  let process = words
  const make = () =>
    new HeldEgress({
      names: { egressGroup: '/none', sandboxDir: (id) => `${folder}/${id}` },
      imageDir: folder,
      network: {
        subnet,
        address: (slot) => subnet.address(slot),
        setEgress: move,
        attach: async (slot, _, __, state) => {
          await move(slot, state ?? 'open')
          moves.push(`${slot} attached`)
        },
      },
      given: {
        egressOf: async (id) => {
          asked.push(id)
          const answer = answers.get(id) ?? stated('open')
          if (answer instanceof Error) throw answer
          return await answer
        },
        onEgressEntry: () => undefined,
        onEgressEntriesDropped: () => undefined,
      },
      run,
      log: (message) => said.push(message),
      process: fakeOptions(() => frames.program(...process)),
    })
  const held = make()
  t.after(() => held.close())
  const start = async (state: EgressState) => {
    answers.set('sb-1', stated(state))
    await held.prepare(one, false)
    await held.attach(one, owner)
  }
  const file = () => readFile(`${folder}/sb-1/egress`, 'utf8').catch(() => 'open')
  return {
    ...{ ...frames, held, make, start, moves, states, answers, asked, said, file, folder },
    setProcess: (...changed: string[]) => (process = changed),
  }
}

test('held egress: the process has the plan and the packet rules the address before the link is there', async (t) => {
  const { held, start, noted, moves, file } = await makeHeld(t)
  await held.open()
  await start('confined')
  const [frame] = (await noted()).filter(({ op }) => op === 'put')
  assert.deepEqual([frame?.sandbox, frame?.address, frame?.plan?.connections_max], ['sb-1', '10.200.0.2', 1])
  assert.deepEqual(moves, ['1 confined', '1 attached'])
  assert.equal(await file(), 'confined')
  assert.equal(held.stateOf('sb-1'), 'confined')
})

test('held egress: an open sandbox needs no process, and a warm one is not asked for until somebody takes it', async (t) => {
  const { held, start, noted, moves, asked, answers, said, setProcess } = await makeHeld(t, ['fails'])
  await held.open()
  await start('open')
  assert.deepEqual(moves, ['1 open', '1 attached'])
  answers.set('sb-1', stated('confined'))
  await held.prepare(one, true)
  assert.deepEqual(asked, ['sb-1'])
  assert.match(held.unavailable() ?? '', /it is taken/)
  await refuses(held.refresh('sb-1'), 'unavailable', /it is taken/)
  assert.equal(moves.at(-1), '1 confined', 'closed, as it could not be held')
  assert.equal(
    (await noted()).some(({ op }) => op === 'put'),
    false,
  )
  setProcess()
  await eventually(async () => {
    await held.tend()
    return (await noted()).some(({ op }) => op === 'put')
  })
  assert.ok(said.length > 0)
})

test('held egress: a start that cannot be held fails before anything of it runs', async (t) => {
  const { held, answers, moves } = await makeHeld(t, ['fails'])
  await held.open()
  answers.set('sb-1', stated('proxied'))
  await refuses(held.prepare(one, false), 'unavailable', /cannot be held/)
  answers.set('sb-1', new Error('the database is away'))
  await assert.rejects(held.prepare(one, false), /the database is away/)
  answers.set('sb-1', { state: 'confined' })
  await assert.rejects(held.prepare(one, false), /no plan/)
  held.release('sb-1')
  assert.deepEqual(moves, [])
})

test('held egress: a change tightens before the process has the plan, and loosens after', async (t) => {
  const { held, start, noted, seen, moves, answers, file } = await makeHeld(t)
  await held.open()
  await start('open')
  moves.length = 0
  const change = async (state: EgressState, plan: number) => {
    answers.set('sb-1', stated(state, plan))
    await held.refresh('sb-1')
    assert.equal(await file(), state)
  }
  await change('confined', 2)
  await change('confined', 3)
  await change('proxied', 4)
  await change('open', 5)
  assert.deepEqual(moves, ['1 confined', '1 proxied', '1 open'])
  await seen('drop')
  const frames = (await noted()).filter(({ op }) => op === 'put' || op === 'drop')
  assert.deepEqual(
    frames.map(({ op, plan }) => [op, plan?.connections_max]),
    [
      ['put', 2],
      ['put', 3],
      ['put', 4],
      ['drop', undefined],
    ],
  )
})

test('held egress: a change that the process refuses leaves the stricter of the two', async (t) => {
  const { held, answers, folder, states } = await makeHeld(t)
  await held.open()
  const refused = { id: 'sb-refused', slot: 3 }
  await mkdir(`${folder}/${refused.id}`)
  await held.prepare(refused, false)
  await held.attach(refused, owner)
  answers.set(refused.id, stated('proxied'))
  await refuses(held.refresh(refused.id), 'unavailable', /a plan without sense/)
  assert.equal(states.get(3), 'proxied')
  answers.set(refused.id, stated('open'))
  await held.tend()
  assert.equal(states.get(3), 'open', 'what failed is tried again')
})

test('held egress: the end of a sandbox is told, waits for nothing, and a later start of the same id is not taken for it', async (t) => {
  const { held, start, noted, seen } = await makeHeld(t)
  await held.open()
  await start('confined')
  held.release('sb-1')
  held.release('sb-1')
  await seen('drop')
  assert.equal(held.stateOf('sb-1'), 'open')
  await start('confined')
  held.release('sb-1')
  await start('proxied')
  const ops = (await noted()).flatMap(({ op }) => (op === 'put' || op === 'drop' ? op : []))
  assert.equal(ops.at(-1), 'put')
  await held.refresh('sb-unknown')
})

test('held egress: a change that is under way when the sandbox ends moves nothing any more', async (t) => {
  const { held, start, answers, moves, asked } = await makeHeld(t)
  await held.open()
  await start('confined')
  moves.length = 0
  const answer = Promise.withResolvers<StatedEgress>()
  answers.set('sb-1', answer.promise)
  const change = held.refresh('sb-1')
  await eventually(() => asked.length === 2)
  held.release('sb-1')
  answer.resolve(stated('open'))
  await change
  assert.deepEqual(moves, [])
})

test('held egress: a process that takes the place of another has all plans, asked for anew', async (t) => {
  const { held, start, noted, seen, answers, asked } = await makeHeld(t)
  await held.open()
  await start('confined')
  answers.set('sb-1', stated('confined', 7))
  process.kill((await noted())[0]?.pid ?? 0, 'SIGKILL')
  const puts = await seen('put', 2)
  assert.equal(puts[1]?.plan?.connections_max, 7)
  assert.deepEqual(asked, ['sb-1', 'sb-1'])
})

test('held egress: a server that takes over has what held in its first rules, and asks for the plans', async (t) => {
  const { held, make, start, states, seen, answers } = await makeHeld(t)
  await held.open()
  await start('confined')
  await held.close()
  const next = make()
  t.after(() => next.close())
  assert.equal(next.adopt(one), 'confined')
  answers.set('sb-1', new Error('the database is away'))
  await next.open()
  assert.equal(next.stateOf('sb-1'), 'confined')
  answers.set('sb-1', stated('proxied', 9))
  await next.tend()
  assert.equal(states.get(1), 'proxied')
  assert.equal((await seen('put', 2))[1]?.plan?.connections_max, 9)
})

test('held egress: what cannot be read of the file of a sandbox counts as the strictest', async (t) => {
  const { held, folder } = await makeHeld(t)
  assert.equal(held.adopt(one), 'open')
  await writeFile(`${folder}/sb-1/egress`, '')
  assert.equal(held.adopt(one), 'confined')
  await rm(`${folder}/sb-1/egress`)
  await mkdir(`${folder}/sb-1/egress`)
  assert.equal(held.adopt(one), 'confined')
})

test('held egress: it can be opened again, and is unavailable meanwhile', async (t) => {
  const { held, start, seen } = await makeHeld(t)
  assert.match(held.unavailable() ?? '', /not open/)
  for (let times = 1; times <= 2; times += 1) {
    await held.open()
    assert.equal(held.unavailable(), undefined)
    await start('confined')
    assert.equal((await seen('put', times)).length, times)
    await held.close()
    assert.match(held.unavailable() ?? '', /not open/)
  }
  held.release('sb-1')
})
