/** The driver's promises for what sandboxes may reach, with the process that holds it, and without. */
import assert from 'node:assert/strict'
import { mkdtemp, readdir, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { after, before, describe, test } from 'node:test'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import type { EgressEntry, EgressState, StatedEgress } from '../../src/sandbox/ports/runtime-driver.ts'
import { imageDir } from '../support/images.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, specOf, succeed } from './driver-shell.ts'
import { outsideServer } from './egress-stand-in.ts'
import { Outside, run } from './network-world.ts'

const port = 8_075
const outside = new Outside()

/** What holds for each sandbox; the others are open. */
const stated = new Map<string, StatedEgress | Error>()
const asked: string[] = []
const entries: EgressEntry[] = []

const egress = {
  egressOf: async (id: string) => {
    asked.push(id)
    const answer = stated.get(id) ?? { state: 'open' as const }
    if (answer instanceof Error) throw answer
    return answer
  },
  onEgressEntry: (entry: EgressEntry) => void entries.push(entry),
  onEgressEntriesDropped: () => undefined,
}

function layer(mode: 'none' | 'list', allow: { id: string; cidr: string }[] = []): StatedEgress {
  return {
    state: 'confined',
    plan: { layers: [{ source: 'creation', mode, log_only: false, allow, deny: [] }], secrets: [] },
  }
}

type OpenRunc = ReturnType<typeof useRunc>

const nothing = layer('none')
const theOutside = layer('list', [{ id: 'creation.allow[0]', cidr: `${outside.address}/32` }])

before(async () => {
  await outside.make()
  await outside.start(outsideServer(outside.address, [port]))
})
after(() => outside[Symbol.asyncDispose]())

/** What a connection from inside to the outside gets, and a datagram. */
async function reaches(runc: OpenRunc, id: string): Promise<{ tcp: string; udp: string }> {
  const said = await succeed(
    runc.guest(id),
    `python3 -c '
import socket
def tcp():
    with socket.create_connection(("${outside.address}", ${port}), 30) as c:
        c.settimeout(30)
        c.sendall(b"x\\n")
        return c.makefile().readline().strip() or "ended"
def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(30)
        s.connect(("${outside.address}", ${port}))
        s.send(b"x")
        return s.recv(64).decode().strip()
for attempt in (tcp, udp):
    try: print(attempt())
    except OSError: print("refused")'`,
  )
  const [tcp = '', udp = ''] = said.trim().split('\n')
  return { tcp, udp }
}

const free = { tcp: 'outside', udp: 'outside' }
const held = { tcp: 'refused', udp: 'refused' }
const through = { tcp: 'outside', udp: 'refused' }

/** The state in the packet rules of this host. */
async function stateOf(runc: OpenRunc, id: string): Promise<EgressState> {
  const address = (await succeed(runc.guest(id), 'hostname -I')).trim()
  const isIn = async (set: string) =>
    await run('nft', ['get', 'element', 'inet', `atoll_${runc.fixture.names.hash}`, set, `{ ${address} }`]).then(
      () => true,
      () => false,
    )
  if (!(await isIn('proxied'))) return 'open'
  return (await isIn('confined')) ? 'confined' : 'proxied'
}

describe('the runc driver with egress', () => {
  const runc = useRunc({}, { egress })

  test('egress: a sandbox has what is said of it from its first moment on, and changes live', async () => {
    assert.equal(runc.driver.egress?.unavailable(), undefined)
    const id = freshId('sb')
    stated.set(id, nothing)
    await runc.driver.create(specOf(id))
    assert.deepEqual(await reaches(runc, id), held)
    await eventually(() => entries.some((entry) => entry.sandbox === id && entry.decision === 'denied'))
    for (const [what, expected] of [
      [theOutside, through],
      [{ state: 'open' }, free],
      [nothing, held],
    ] as const) {
      stated.set(id, what)
      await runc.driver.egress?.refresh(id)
      assert.deepEqual(await reaches(runc, id), expected)
    }
    await remove(runc.driver, id)
    await runc.driver.egress?.refresh(id)
  })

  test('egress: each start asks anew: after a hibernation, a restart, a restore, and as a fork', async () => {
    const id = freshId('sb')
    stated.set(id, nothing)
    await runc.driver.create(specOf(id))
    await runc.driver.checkpoint(id, 'cp-egress', 'full')
    const starts: [string, () => Promise<void>][] = [
      ['wake', () => runc.driver.hibernate(id).then(() => runc.driver.wake(specOf(id)))],
      ['restart', () => runc.driver.restart(specOf(id))],
      ['restore', () => runc.driver.restore(specOf(id), 'cp-egress')],
    ]
    for (const [name, start] of starts) {
      stated.set(id, theOutside)
      await start()
      assert.deepEqual(await reaches(runc, id), through, name)
      stated.set(id, nothing)
      await runc.driver.egress?.refresh(id)
      assert.deepEqual(await reaches(runc, id), held, name)
    }
    const fork = await create(runc.driver, { from: { checkpointId: 'cp-egress' } })
    assert.deepEqual(await reaches(runc, fork), free)
    await remove(runc.driver, fork, id, 'cp-egress')
  })

  test('egress: a warm sandbox is open until somebody has it, and held when it is handed out', async () => {
    const id = freshId('sb')
    stated.set(id, nothing)
    await runc.driver.prepare(specOf(id))
    assert.equal(asked.includes(id), false)
    await runc.driver.create(specOf(id))
    assert.equal(await stateOf(runc, id), 'confined')
    assert.deepEqual(await reaches(runc, id), held)
    const failing = freshId('sb')
    await runc.driver.prepare(specOf(failing))
    stated.set(failing, new Error('the database is away'))
    await assert.rejects(runc.driver.create(specOf(failing)), /the database is away/)
    assert.equal(await runc.driver.isPrepared(specOf(failing)), false)
    await remove(runc.driver, id)
  })

  test('egress: alignment brings a sandbox to what is said, and tells', async () => {
    const id = await create(runc.driver)
    stated.set(id, nothing)
    const { differences } = await runc.driver.align(specOf(id))
    assert.deepEqual(differences, [{ what: 'network', had: 'open', wanted: 'confined', isMended: true }])
    assert.deepEqual((await runc.driver.align(specOf(id))).differences, [])
    assert.deepEqual(await reaches(runc, id), held)
    await remove(runc.driver, id)
  })

  test('egress: the next driver holds what runs, also while nobody says what holds', async () => {
    const [id, open] = [freshId('sb'), await create(runc.driver)]
    stated.set(id, theOutside)
    await runc.driver.create(specOf(id))
    await runc.driver.close()
    stated.set(id, new Error('the database is away'))
    await runc.reopen({ sandboxIds: [id, open] })
    assert.equal(await stateOf(runc, id), 'confined')
    assert.deepEqual(await reaches(runc, id), held)
    assert.deepEqual(await reaches(runc, open), free)
    stated.set(id, theOutside)
    await eventually(async () => assert.deepEqual(await reaches(runc, id), through))
    await remove(runc.driver, id, open)
  })
})

/** The images without the program. */
const otherImages = await mkdtemp(`${tmpdir()}/atoll-images-`)
for (const name of await readdir(imageDir)) {
  if (!name.startsWith('egress')) await symlink(`${imageDir}/${name}`, `${otherImages}/${name}`)
}
after(() => rm(otherImages, { recursive: true }))

describe('the runc driver without the program that holds egress', () => {
  const runc = useRunc({ imageDir: otherImages }, { egress })

  test('egress: open sandboxes work as ever, others do not start, and nothing of them is left', async () => {
    assert.match(runc.driver.egress?.unavailable() ?? '', /no atoll-egress in .*npm run setup/)
    const [open, id] = [await create(runc.driver), freshId('sb')]
    assert.deepEqual(await reaches(runc, open), free)
    stated.set(id, nothing)
    await refuses(runc.driver.create(specOf(id)), 'unavailable', /npm run setup/)
    assert.equal((await runc.fixture.recorded()).sandboxIds.includes(id), false)
    await refuses(runc.driver.egress!.makeAuthority(), 'unavailable', /npm run setup/)
    await remove(runc.driver, open)
  })

  test('egress: a wake that cannot be held keeps the saved memory', async () => {
    const id = await create(runc.driver)
    await runc.driver.hibernate(id)
    const hadMemory = runc.driver.hasMemory(id)
    stated.set(id, nothing)
    await refuses(runc.driver.wake(specOf(id)), 'unavailable', /npm run setup/)
    assert.equal(runc.driver.hasMemory(id), hadMemory)
    stated.set(id, { state: 'open' })
    await runc.driver.wake(specOf(id))
    assert.deepEqual(await reaches(runc, id), free)
    await remove(runc.driver, id)
  })

  test('egress: a running sandbox that cannot be held is closed, and can be deleted', async () => {
    const id = await create(runc.driver)
    stated.set(id, nothing)
    await refuses(runc.driver.egress!.refresh(id), 'unavailable', /npm run setup/)
    assert.deepEqual(await reaches(runc, id), held)
    await remove(runc.driver, id)
  })
})
