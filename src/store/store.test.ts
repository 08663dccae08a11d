import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { isServiceError } from '../errors.ts'
import type { Sandbox, SandboxStore } from '../sandbox/index.ts'
import { cachedSandboxStore } from './cached-sandboxes.ts'
import { decodeCursor, encodeCursor } from './rows.ts'
import { lenient, lenientJson, strict, strictJson } from './text.ts'

test('cursor: it decodes to its position', () => {
  const position = { createdAt: new Date('2026-01-15T10:30:00.123Z'), id: 'session_0a1b2c3d4e5f' }
  assert.deepEqual(decodeCursor(encodeCursor(position)), position)
  assert.match(encodeCursor(position), /^[\w-]+$/)
})

test('cursor: any other text is refused or decodes to a complete position', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.base64String(),
        fc.string().map((text) => btoa(encodeURI(text))),
      ),
      (text) => {
        try {
          const { createdAt, id } = decodeCursor(text)
          assert.ok(createdAt.toISOString() && id)
        } catch (error) {
          assert.ok(isServiceError(error, 'invalid_request') && error.message.includes('cursor'))
        }
      },
    ),
  )
})

/** Strings of any UTF-16 code units, so also of lone surrogates, with many NULs and backslashes. */
const anyText = fc
  .array(fc.oneof(fc.integer({ min: 0, max: 0xffff }), fc.constantFrom(0, 0x5c, 0x75, 0x30, 0xd800, 0xdc00)))
  .map((units) => String.fromCharCode(...units))
const anyJson = fc.object({ key: anyText, values: [anyText, fc.double(), fc.boolean(), fc.constant(null)] })

function everyText(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value)
  if (Array.isArray(value)) return value.map((item) => everyText(item, change))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [change(key), everyText(inner, change)]))
}

function namesIn(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  return Object.values(value).reduce((sum: number, inner) => sum + 1 + namesIn(inner), 0)
}

test('lenient text: it has neither NUL nor lone surrogates and is otherwise unchanged', () => {
  fc.assert(
    fc.property(anyText, (text) => {
      const kept = lenient(text)
      assert.ok(kept.isWellFormed() && !kept.includes('\0'))
      assert.equal(kept, text.toWellFormed().replaceAll('\0', '\ufffd'))
    }),
  )
})

test('strict text: it is refused for NUL alone, with the name of its field', () => {
  fc.assert(
    fc.property(anyText, (text) => {
      if (!text.includes('\0')) return assert.equal(strict(text, 'script'), text.toWellFormed())
      assert.throws(
        () => strict(text, 'script'),
        (error) => isServiceError(error, 'invalid_request') && error.message.includes('script'),
      )
    }),
  )
})

test('lenient JSON: it reads as the value with lenient text in every key and value', () => {
  fc.assert(
    fc.property(anyJson, (value) => {
      const wanted = everyText(value, lenient)
      // When two keys become equal an object keeps one, and its text has both.
      fc.pre(namesIn(wanted) === namesIn(value))
      assert.equal(lenientJson(value), JSON.stringify(wanted))
    }),
  )
})

test('strict JSON: it is refused exactly when a key or value has a NUL', () => {
  fc.assert(
    fc.property(anyJson, (value) => {
      let hasNul = false
      everyText(value, (text) => ((hasNul ||= text.includes('\0')), text))
      if (hasNul) assert.throws(() => strictJson(value, 'envs'), /envs/)
      else assert.equal(strictJson(value, 'envs'), lenientJson(value))
    }),
  )
})

const sandbox = { id: 'sb-1', orgId: 'org_1', status: 'running' } as Sandbox

/** A store of one sandbox whose reads and writes wait until they are let go. */
function slowStore() {
  let row = sandbox
  let reads = 0
  let gate: Promise<void> = Promise.resolve()
  const store = {
    async sandbox() {
      reads += 1
      const seen = row
      await gate
      return seen
    },
    async updateSandbox(_id: string, change: Partial<Sandbox>) {
      row = { ...row, ...change }
      const written = row
      await gate
      return written
    },
  } as unknown as SandboxStore
  return { store: cachedSandboxStore(store), reads: () => reads, hold: (until: Promise<void>) => void (gate = until) }
}

test('sandbox cache: a sandbox is read once, and never returned to another organisation', async () => {
  const { store, reads } = slowStore()
  assert.equal(await store.sandbox('sb-1'), sandbox)
  assert.equal(await store.sandbox('sb-1', 'org_1'), sandbox)
  assert.equal(await store.sandbox('sb-1', 'org_2'), undefined)
  assert.equal(reads(), 1)
})

test('sandbox cache: the next read sees a write', async () => {
  const { store } = slowStore()
  await store.sandbox('sb-1')
  await store.updateSandbox('sb-1', { status: 'stopped' })
  assert.equal((await store.sandbox('sb-1'))?.status, 'stopped')
})

test('sandbox cache: what a write returns is kept, unless another overlaps with it', async () => {
  const { store, reads, hold } = slowStore()
  await store.updateSandbox('sb-1', { cpuCount: 2 })
  assert.equal((await store.sandbox('sb-1'))?.cpuCount, 2)
  assert.equal(reads(), 0)
  const gate = Promise.withResolvers<void>()
  hold(gate.promise)
  const first = store.updateSandbox('sb-1', { cpuCount: 3 })
  hold(Promise.resolve())
  await store.updateSandbox('sb-1', { cpuCount: 4 })
  gate.resolve()
  await first
  assert.equal((await store.sandbox('sb-1'))?.cpuCount, 4)
  assert.equal(reads(), 1)
})

test('sandbox cache: a read during a write is not cached', async () => {
  const { store, hold } = slowStore()
  const gate = Promise.withResolvers<void>()
  hold(gate.promise)
  const early = store.sandbox('sb-1')
  hold(Promise.resolve())
  await store.updateSandbox('sb-1', { status: 'stopped' })
  gate.resolve()
  assert.equal((await early)?.status, 'running')
  assert.equal((await store.sandbox('sb-1'))?.status, 'stopped')
})
