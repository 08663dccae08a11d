import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { BodyBudget } from '../../src/lib/body-budget.ts'
import { frameKind } from '../../src/protocol/guest.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { drain, type Ending, frame, guestThat, hostile, json, line, ok, stat, uint64 } from './hostile-guest.ts'

test('guest floods: a frame without content is a violation of an attachment', async () => {
  for (const frames of [
    [frame(frameKind.taken, uint64(0))],
    [frame(frameKind.replayed, uint64(0)), frame(frameKind.replayed, uint64(0))],
    [frame(frameKind.stdout, uint64(0))],
  ]) {
    const attached = line({ ok: true, input: true, taken: 0, inputEnded: false })
    const { guest, open } = hostile([attached, ...frames], 'stall', {})
    await refuses(drain(await guest.attach('x')), 'unavailable', /answers nonsense/)
    assert.equal(open(), 0)
  }
})

test('guest floods: tiny frames are read alternately with other work', async () => {
  const [guests, frames] = [4, 5000]
  const tiny = Array.from({ length: frames }, (_, at) => frame(frameKind.stdout, uint64(at), Buffer.from('x')))
  const attached = line({ ok: true, input: false, taken: 0, inputEnded: false })
  const flood = [attached, Buffer.concat(tiny), frame(frameKind.exit, Buffer.alloc(4))]
  let [seen, before, most, over] = [0, 0, 0, false]
  const look = (): void => {
    most = Math.max(most, seen - before)
    before = seen
    if (!over) setImmediate(look)
  }
  const read = async (): Promise<void> => {
    await using attachment = await hostile(flood, 'stall', {}).guest.attach('x')
    for await (const event of attachment) if (event.type === 'output') seen += event.data.length
  }
  look()
  await Promise.all(Array.from({ length: guests }, read))
  over = true
  look()
  assert.equal(seen, guests * frames)
  // Each begins with 64 at once; then one goes on each time.
  assert.ok(most <= guests * 64, `${most} frames in a row`)
})

test('guest floods: a long list is checked alternately with other work', async () => {
  const page = frame(frameKind.entries, json(Array.from({ length: 1000 }, () => ({ ...stat, name: 'x' }))))
  const pages = Array.from({ length: 50 }, () => page)
  let [iterations, over] = [0, false]
  const look = (): void => {
    iterations++
    if (!over) setImmediate(look)
  }
  const { guest } = hostile([line(ok), Buffer.concat([...pages, frame(frameKind.end)])], 'stall', {})
  look()
  assert.equal((await guest.list('/x')).length, 50_000)
  over = true
  assert.ok(iterations >= pages.length, `${iterations} iterations of the event loop`)
})

test('guest floods: endless lists take bounded memory, of one organisation and of all, and small ones pass', async () => {
  const entry = { path: '/x', isDir: false, size: 1, mode: 0o644, modifiedSeconds: 0, name: 'x'.repeat(200) }
  const page = frame(frameKind.entries, json(Array.from({ length: 200 }, () => entry)))
  const listings = new BodyBudget(3 * page.length, { ownerBytesMax: 2 * page.length, freeBytes: 4096 })
  const guestOf = (owner: string, chunks: Uint8Array[], ending: Ending) =>
    hostile([line(ok), ...chunks], ending, { listings, owner })
  // Its guest leaves when all others have been answered, however long that takes.
  const leaving = Promise.withResolvers<void>()
  const { guest } = guestThat(
    (server) => {
      for (const chunk of [line(ok), page, page]) server.write(chunk)
      void leaving.promise.then(() => server.end())
    },
    { listings, owner: 'org_one' },
  )
  const held = guest.list('/')
  const hasRoom = () => {
    using share = listings.open('org_one')
    return share.take(page.length + 4096)
  }
  while (hasRoom()) await sleep(1)
  await refuses(guestOf('org_one', [page], 'stall').guest.list('/'), 'unavailable', /too many long lists/)
  await refuses(guestOf('org_two', [page, page], 'stall').guest.list('/'), 'unavailable', /too many long lists/)
  // What one organisation cannot take is there for another.
  assert.equal((await guestOf('org_two', [page, frame(frameKind.end)], 'end').guest.list('/')).length, 200)
  const small = [frame(frameKind.entries, json([entry])), frame(frameKind.end)]
  assert.equal((await guestOf('org_one', small, 'end').guest.list('/')).length, 1)
  leaving.resolve()
  await refuses(held, 'unavailable')
  // What they took is given back.
  const whole = [page, page, frame(frameKind.end)]
  assert.equal((await guestOf('org_one', whole, 'end').guest.list('/')).length, 400)
})
