import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { isRecord } from '../lib/json.ts'
import { modelRequest } from './model-request.ts'
import { RefusedField } from './refused-field.ts'
import { betasOf } from './request-rules.ts'
import { harnessRequests } from './testing/harness-requests.ts'
import { wires } from './wires.ts'

async function sent(path: string, body: string): Promise<string> {
  const { pieces } = await modelRequest(wires[path]!, Buffer.from(body))
  return Buffer.concat([...pieces]).toString()
}

test('harness requests: they pass unchanged but for what refers to earlier answers, with all their beta features', async () => {
  for (const { harness, path, body, betas, cut = [] } of harnessRequests) {
    const text = JSON.stringify(body)
    const passed = await sent(path, text)
    if (cut.length === 0) assert.equal(passed, text, `${harness} ${path}`)
    assert.deepEqual(JSON.parse(passed), without(body, cut), `${harness} ${path}`)
    assert.deepEqual(betasOf(betas), { served: betas, unknown: [] })
  }
})

/** Fields whose content is the client's own. */
const freeFields = new Set(['parameters', 'input_schema', 'schema', 'metadata', 'client_metadata', 'env'])

/** Every object of a body whose fields are inspected. */
function inspected(value: unknown): Record<string, unknown>[] {
  if (Array.isArray(value)) return value.flatMap(inspected)
  if (!isRecord(value)) return []
  const inside = Object.entries(value).filter(
    ([name, inner]) =>
      !freeFields.has(name) &&
      !(name === 'input' && isRecord(inner)) &&
      name !== 'diagnostics' &&
      name !== 'internal_chat_message_metadata_passthrough',
  )
  return [value, ...inside.flatMap(([, inner]) => inspected(inner))]
}

const unknownName = fc.oneof(
  fc.constantFrom('file_id', 'file_ids', 'container_id', 'vector_store_ids', 'voice', 'item_id', 'FILE_ID', 'Content'),
  fc.string({ unit: 'binary', maxLength: 12 }).map((name) => `unknown ${name}`),
)

test('harness requests: a field that no shape has never reaches the model API, wherever it stands', () =>
  fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...harnessRequests),
      fc.nat(),
      unknownName,
      fc.jsonValue({ maxDepth: 2 }),
      fc.boolean(),
      async ({ path, body }, place, name, value, isFirst) => {
        const copy = structuredClone(body)
        const objects = inspected(copy)
        const object = objects[place % objects.length]!
        const before = Object.entries(object)
        // Empty, these are no reference.
        const marked = name === 'file_id' ? { marked: value } : value
        for (const [own] of before) delete object[own]
        Object.assign(object, Object.fromEntries(isFirst ? [[name, marked], ...before] : [...before, [name, marked]]))
        const text = JSON.stringify(copy).replace('"file_id":{"marked"', '"fil\\u0065_id":{"marked"')
        await assert.rejects(sent(path, text), (error: Error) => {
          const isOtherCase = name.toLowerCase() !== name && /must be written/.test(error.message)
          return error instanceof RefusedField || isOtherCase
        })
      },
    ),
    { numRuns: 2000 },
  ))

function without(value: unknown, cut: readonly string[], at = ''): unknown {
  if (Array.isArray(value)) return value.map((item) => without(item, cut, `${at}[]`))
  if (!isRecord(value)) return value
  const fields = Object.entries(value).map(
    ([name, inner]) => [at === '' ? name : `${at}.${name}`, name, inner] as const,
  )
  const kept = fields.filter(([path]) => !cut.includes(path))
  return Object.fromEntries(kept.map(([path, name, inner]) => [name, without(inner, cut, path)]))
}
