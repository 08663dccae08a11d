import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { agentLineBytesMax } from './agent.ts'
import { LineSplitter } from './line-splitter.ts'

test('line splitter: lines do not depend on the chunks of the stream', () => {
  fc.assert(
    fc.property(
      fc.array(fc.stringMatching(/^[^\n]{0,30}$/)),
      fc.array(fc.nat(40), { minLength: 1 }),
      (lines, sizes) => {
        const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''))
        const splitter = new LineSplitter()
        const found = []
        for (let at = 0, turn = 0; at < bytes.length; turn++) {
          const size = Math.max(1, sizes[turn % sizes.length]!)
          found.push(...splitter.push(bytes.subarray(at, at + size)))
          at += size
        }
        const expected = lines.filter((line) => line !== '')
        assert.deepEqual(
          found.map((line) => line.type === 'line' && line.text),
          expected.map((line) => Buffer.from(line).toString()),
        )
        if (found.length > 0 && lines.at(-1) !== '') assert.equal(found.at(-1)?.endOffset, bytes.length)
      },
    ),
  )
})

test('line splitter: a line that is too long is dropped in bounded memory, and the next one is read', () => {
  const splitter = new LineSplitter(10)
  assert.deepEqual(splitter.push(Buffer.from('0123456789\n')), [{ type: 'line', text: '0123456789', endOffset: 11 }])
  for (let round = 0; round < 1000; round++) assert.deepEqual(splitter.push(Buffer.alloc(100, 'x')), [])
  assert.deepEqual(splitter.push(Buffer.from('y\nok\n')), [
    { type: 'too_long', byteLength: 100_001, head: 'x'.repeat(100), endOffset: 100_013 },
    { type: 'line', text: 'ok', endOffset: 100_016 },
  ])
  const begun = splitter.push(Buffer.from('{"id":1'))
  const [line] = [...begun, ...splitter.push(Buffer.alloc(1000, 'z')), ...splitter.push(Buffer.from('\n'))]
  assert.ok(line?.type === 'too_long' && /^\{"id":1z+$/.test(line.head) && line.head.length === 256)
  assert.ok(agentLineBytesMax >= 1024 * 1024)
})

test('line splitter: a line that arrives byte by byte takes no more memory than its bytes', () => {
  const splitter = new LineSplitter()
  const byte = Buffer.from('x')
  const held = () => process.memoryUsage().heapUsed + process.memoryUsage().arrayBuffers
  const before = held()
  for (let count = 0; count < 2_000_000; count++) assert.ok(splitter.push(byte).length === 0)
  const grown = held() - before
  assert.ok(grown < 100 * 1024 * 1024, `${grown} bytes for a line of 2 MB`)
  const [line] = splitter.push(Buffer.from('\n'))
  assert.ok(line?.type === 'line' && line.text.length === 2_000_000)
})

test('line splitter: offsets are those of the log of both streams, with other output between two chunks', () => {
  const splitter = new LineSplitter()
  assert.deepEqual(splitter.push(Buffer.from('{"a"'), 100), [])
  assert.deepEqual(splitter.push(Buffer.from(':1}\nx'), 5000), [{ type: 'line', text: '{"a":1}', endOffset: 5004 }])
})

test('line splitter: lines of a chunk are found one after the other, and empty ones are skipped', () => {
  const splitter = new LineSplitter()
  const lines = splitter.split(Buffer.from('\n\na\n\n\nb\n\nc'))
  const text = (line: ReturnType<typeof lines.next>['value']) => line?.type === 'line' && line.bytes.toString()
  assert.equal(text(lines.next().value), 'a')
  const { value: second } = lines.next()
  assert.deepEqual([text(second), second?.endOffset], ['b', 8])
  assert.equal(lines.next().done, true)
  assert.deepEqual(splitter.push(Buffer.from('\n\n\n')), [{ type: 'line', text: 'c', endOffset: 11 }])
})
