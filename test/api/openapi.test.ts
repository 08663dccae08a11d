import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { errorCodes } from '../../src/errors.ts'
import { statusOf } from '../../src/lib/error-status.ts'
import { openApiDocument, openApiFile, openApiText } from '../../src/http/server/openapi.ts'
import { routes } from '../../src/http/routes/index.ts'

test('openapi: openapi.json is what the routes say now', () => {
  assert.ok(readFileSync(openApiFile, 'utf8') === openApiText(routes), 'openapi.json is stale: run `npm run openapi`')
})

test('openapi: every operation has an id of its own, a summary, and answers', () => {
  const document = openApiDocument(routes)
  const ids = new Set<unknown>()
  let operations = 0
  for (const item of Object.values(document.paths)) {
    for (const operation of Object.values(item) as Record<string, unknown>[]) {
      operations++
      ids.add(operation['operationId'])
      // A sentence by itself, as menus and generated clients show it.
      assert.match(String(operation['summary']), /^[A-Z]\S* \S+/, String(operation['operationId']))
      assert.ok(Object.keys(operation['responses'] as object).length > 1)
    }
  }
  assert.equal(ids.size, operations)
  assert.equal(operations, routes.length)
})

test('openapi: every reference of the document leads somewhere', () => {
  const document = openApiDocument(routes)
  const references = [...JSON.stringify(document).matchAll(/"\$ref":"#\/components\/(\w+)\/([\w-]+)"/g)]
  assert.ok(references.length > 1000)
  assert.ok(!JSON.stringify(document).includes('#/$defs'))
  const components = document.components as Record<string, Record<string, unknown>>
  for (const [, kind = '', name = ''] of references) assert.ok(components[kind]?.[name], `${kind}/${name}`)
})

test('openapi: what operations share is in the document once, so it stays small', () => {
  assert.ok(openApiText(routes).length < 768 * 1024)
})

test('openapi: docs/use/errors.md explains every code with its status, and no other', () => {
  const text = readFileSync(new URL('../../docs/use/errors.md', import.meta.url), 'utf8')
  const rows = [...text.matchAll(/^\| `(\w+)` \| (\d{3}) \|/gm)].map(([, code, status]): [unknown, number] => [
    code,
    Number(status),
  ])
  assert.deepEqual(
    rows,
    errorCodes.map((code) => [code, statusOf[code]]),
  )
})

/** The fields below a value of the document that have no description, by their place. */
function undescribed(value: unknown, place: string): string[] {
  if (typeof value !== 'object' || value === null) return []
  const { properties, type } = value as { properties?: Record<string, Record<string, unknown>>; type?: unknown }
  const fields = type === 'object' ? Object.entries(properties ?? {}) : []
  const missing = fields.filter(([, field]) => typeof field['description'] !== 'string' || field['description'] === '')
  const below = Object.entries(value).flatMap(([key, item]) => undescribed(item, `${place}/${key}`))
  return [...missing.map(([name]) => `${place}.${name}`), ...below]
}

test('openapi: every field of every schema, and every parameter, has a description', () => {
  const document = openApiDocument(routes)
  assert.deepEqual(undescribed(document, ''), [])
  type Parameter = { name: string; description?: string; schema: { description?: string } }
  const shared = document.components.parameters as unknown as Record<string, Parameter>
  const parameters = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.values(item).flatMap((operation) => {
      const { parameters: own } = operation as { parameters: (Parameter | { $ref: string })[] }
      return own.map((part) => ({ path, ...('$ref' in part ? shared[part.$ref.split('/').at(-1) ?? '']! : part) }))
    }),
  )
  assert.ok(parameters.length > 100)
  const bare = parameters.filter((parameter) => !parameter.description && !parameter.schema.description)
  assert.deepEqual(
    bare.map(({ path, name }) => `${path} ${name}`),
    [],
  )
})

test('openapi: ids of operations are names of methods, and no two routes share one', () => {
  const ids = routes.map(({ id }) => id)
  for (const id of ids) assert.match(id, /^[a-z][A-Za-z]+$/)
  assert.equal(new Set(ids).size, ids.length)
})

test('openapi: the events of a session are a component that the route of the stream names', () => {
  const { paths, components } = openApiDocument(routes)
  assert.ok(components.schemas['StreamEvent'])
  const operation = paths['/v1/sessions/{sessionId}/events']?.['get'] as { description: string } | undefined
  assert.match(operation?.description ?? '', /#\/components\/schemas\/StreamEvent/)
})
