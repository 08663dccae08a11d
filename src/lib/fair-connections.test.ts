import assert from 'node:assert/strict'
import { EventEmitter } from 'node:events'
import type { Socket } from 'node:net'
import { test } from 'node:test'
import { FairConnections } from './fair-connections.ts'

/** Stands for a socket. */
class Connection extends EventEmitter {
  isOpen = true

  destroy(): void {
    if (!this.isOpen) return
    this.isOpen = false
    // As with a socket, later.
    setImmediate(() => this.emit('close'))
  }
}

function admit(connections: FairConnections, owner: string): Connection {
  const connection = new Connection()
  assert.equal(connections.admit(owner, connection as unknown as Socket), connection.isOpen)
  return connection
}

const openOf = (connections: readonly Connection[]) => connections.filter(({ isOpen }) => isOpen).length

test('fair connections: whoever has the most loses its oldest for one who has fewer', () => {
  const connections = new FairConnections(8)
  const greedy = Array.from({ length: 6 }, () => admit(connections, 'sb-greedy'))
  const modest = [admit(connections, 'sb-modest'), admit(connections, 'sb-modest')]
  assert.equal(openOf(greedy), 6)
  const first = admit(connections, 'sb-new')
  assert.equal(first.isOpen, true)
  assert.deepEqual(
    greedy.map(({ isOpen }) => isOpen),
    [false, true, true, true, true, true],
  )
  assert.equal(openOf(modest), 2)
})

test('fair connections: one who has the most gets no more, and ends nothing of others', () => {
  const connections = new FairConnections(4)
  const one = [admit(connections, 'sb-1'), admit(connections, 'sb-1')]
  const two = [admit(connections, 'sb-2'), admit(connections, 'sb-2')]
  assert.equal(admit(connections, 'sb-1').isOpen, false)
  assert.equal(openOf([...one, ...two]), 4)
})

test('fair connections: a hundred owners of one tenant that hold all do not keep another out', () => {
  const connections = new FairConnections(400)
  const all = Array.from({ length: 400 }, (_, index) => admit(connections, `sb-${index % 100}`))
  const other = admit(connections, 'sb-other')
  // They come again at once.
  for (let index = 0; index < 400; index += 1) admit(connections, `sb-${index % 100}`)
  assert.equal(other.isOpen, true)
  assert.equal(openOf(all) < 400, true)
})

test('fair connections: one that closes by itself gives its place back, once', async () => {
  const connections = new FairConnections(2)
  const [first, second] = [admit(connections, 'sb-1'), admit(connections, 'sb-2')]
  first.destroy()
  await new Promise(setImmediate)
  first.emit('close')
  assert.equal(admit(connections, 'sb-2').isOpen, true)
  assert.equal(admit(connections, 'sb-2').isOpen, false)
  assert.equal(second.isOpen, true)
})
