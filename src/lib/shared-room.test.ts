import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SharedRoom } from './shared-room.ts'

const turns = () => new Promise((resolve) => setImmediate(resolve))

test('no owner has more than its share, and all together no more than there is', () => {
  const room = new SharedRoom({ ofOneMax: 10, ofAllMax: 15 })
  const leave = room.tryEnter('a', 8)
  assert.ok(leave)
  assert.equal(room.tryEnter('a', 3), undefined)
  assert.ok(room.tryEnter('b', 7))
  assert.equal(room.tryEnter('c', 1), undefined)
  leave()
  leave()
  assert.ok(room.tryEnter('c', 8))
  assert.equal(room.tryEnter('d', 1), undefined, 'what is given back twice counts once')
})

test('whoever waits comes in turn, and holds up nobody of another owner', async () => {
  const room = new SharedRoom({ ofOneMax: 10, ofAllMax: 100 })
  const entered: string[] = []
  const wait = async (name: string, owner: string, size: number) => {
    const leave = await room.enter(owner, size)
    entered.push(name)
    return leave
  }
  const first = await wait('first', 'a', 9)
  const second = wait('second', 'a', 8)
  void wait('third', 'a', 1)
  void wait('other', 'b', 10)
  await turns()
  assert.deepEqual(entered, ['first', 'other'])
  first()
  await turns()
  assert.deepEqual(entered, ['first', 'other', 'second', 'third'])
  const last = wait('last', 'a', 10)
  await turns()
  assert.equal(entered.length, 4)
  ;(await second)()
  await turns()
  assert.equal(entered.length, 4, 'the third is still inside')
  void last
})

test('what is larger than a share is let in alone', () => {
  const room = new SharedRoom({ ofOneMax: 10, ofAllMax: 15 })
  const leave = room.tryEnter('a', 1000)
  assert.ok(leave)
  assert.equal(room.tryEnter('a', 1), undefined)
  leave()
  assert.ok(room.tryEnter('a', 1))
})
