/**
 * The examples of the reference: each operation of `openapi.json` is sent as it is shown, in an organisation of its own, and the answer is of
 * the shown kind. Ids of the examples stand for what the test has made, and `/workspace` for the folder of the sandbox.
 */
import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { get } from 'node:http'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import type { Json, SchemaObject } from '../../src/http/server/openapi.ts'
import { tarEnd } from '../../src/protocol/tar-writer.ts'
import {
  ajv,
  document,
  exampleOfParameter,
  type Made,
  operations,
  pathOf,
  prepared,
  queryOf,
  world,
  bodyOf,
} from './operations.ts'

test('examples: every operation shows a request and an answer, and they are what its schemas say', () => {
  for (const { id, path, parameters, body, answer, statuses } of operations) {
    assert.notEqual(body, null, `${id} shows no body: give its schema \`examples\`, or the route \`bodyExample\``)
    assert.ok(statuses.length > 0, `${id} shows no answer`)
    for (const [type, example] of Object.entries(answer)) assert.notEqual(example, undefined, `${id} shows no ${type}`)
    const bare = parameters.filter(
      (parameter) => parameter.required === true && exampleOfParameter(parameter) === undefined,
    )
    assert.deepEqual(
      bare.map(({ name }) => name),
      [],
      `${id} ${path}: parameters without an example`,
    )
  }
  for (const place of placesOfExamples(document, [])) {
    const schema = place.reduce((value: SchemaObject, key) => value[key] as SchemaObject, document)
    const pointer = place.map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/')
    const validate = ajv.compile({ $ref: `openapi#/${pointer}` })
    for (const example of schema['examples'] as Json[]) {
      assert.ok(validate(example), `${place.join('/')}: ${ajv.errorsText(validate.errors)}`)
    }
  }
})

function placesOfExamples(value: Json, place: string[]): string[][] {
  if (typeof value !== 'object' || value === null) return []
  const below = Object.entries(value).flatMap(([key, item]) =>
    key === 'examples' ? [] : placesOfExamples(item, [...place, key]),
  )
  return 'examples' in value ? [place, ...below] : below
}

async function statusOfStream(made: Made, target: string): Promise<number> {
  return await new Promise((resolve, reject) => {
    const call = get(world.origin + target, { headers: { 'x-api-key': made.api.key } }, (response) => {
      assert.match(response.headers['content-type'] ?? '', /^text\/event-stream/)
      response.on('error', () => undefined)
      resolve(response.statusCode ?? 0)
      call.destroy()
    })
    call.on('error', reject)
  })
}

async function statusOfUpgrade(made: Made, target: string): Promise<number> {
  const socket = new WebSocket(`${world.origin.replace('http', 'ws')}${target}`, {
    headers: { 'x-api-key': made.api.key },
  })
  const opened = Promise.withResolvers<number>()
  socket.on('upgrade', ({ statusCode }) => opened.resolve(statusCode ?? 0))
  socket.on('error', opened.reject)
  const status = await opened.promise
  socket.terminate()
  return status
}

for (const operation of operations) {
  test(`examples: ${operation.id} answers as it is shown`, async () => {
    const made = await prepared(operation)
    // Setup makes it.
    if (operation.id === 'getSdk') await writeFile(world.sdkPackage, 'the package')
    if (operation.id.startsWith('import')) {
      Object.assign(world.machines, {
        assertImportable: () => undefined,
        importImage: async (checkpointId: string, source: { archive: AsyncIterable<unknown> }) => {
          for await (const _ of source.archive);
          world.machines.checkpoints.add(checkpointId)
          return { digest: 'sha256:a', sizeBytes: 5, config: { env: {}, entrypoint: [], cmd: [] } }
        },
      })
    }
    if (operation.id === 'exportImage' || operation.id === 'pushImage') {
      // Here the root of a sandbox is that of this machine.
      Object.assign(world.sandboxes.files, { pack: async () => Readable.from([tarEnd]) })
      Object.assign(world.machines, {
        assertImportable: () => undefined,
        pushImage: async (archive: AsyncIterable<unknown>) => {
          for await (const _ of archive);
          return { digest: 'sha256:a' }
        },
      })
    }
    const target = made.real(pathOf(operation)) + (await queryOf(made, operation))
    const { statuses } = operation
    if (statuses.includes(101)) return assert.equal(await statusOfUpgrade(made, target), 101)
    const types = Object.keys(operation.answer)
    if (operation.method === 'GET' && types.length === 1 && types[0] === 'text/event-stream') {
      return assert.equal(await statusOfStream(made, target), 200)
    }
    const headers = {
      ...(operation.id === 'callMcp' ? { accept: 'application/json, text/event-stream' } : {}),
      ...(operation.path.startsWith('/api/dashboard/') ? { origin: world.origin } : {}),
    }
    // Checks the answer with the schemas.
    const answer = await made.api.send(operation.method, target, { body: bodyOf(operation, made), headers })
    assert.ok(
      statuses.includes(answer.status),
      `${answer.status} ${answer.text.slice(0, 500)}, shown are ${statuses.join(', ')}`,
    )
    const shown = operation.answer['application/json']
    if (answer.status === statuses[0] && typeof shown === 'object' && answer.body !== undefined) {
      assert.deepEqual(missing(shown, answer.body), [], `not in the answer ${answer.text.slice(0, 500)}`)
    }
  })
}

/** Fields that are shown and were not answered, by their place. Maps and lists may be empty. */
function missing(shown: Json | undefined, answered: unknown, place = ''): string[] {
  if (Array.isArray(shown))
    return Array.isArray(answered)
      ? answered.length === 0
        ? []
        : missing(shown[0], answered[0], `${place}[0]`)
      : [place]
  if (typeof shown !== 'object' || shown === null) return answered === undefined ? [place] : []
  if (answered === null) return []
  if (typeof answered !== 'object') return [place]
  return Object.entries(shown).flatMap(([name, value]) =>
    missing(value, (answered as Record<string, unknown>)[name], `${place}.${name}`),
  )
}

/** Values that the schema of a field does not allow, and those at its bounds. */
function edgesOf({ minimum, maximum, pattern, maxLength }: SchemaObject): { outside: Json[]; inside: Json[] } {
  if (typeof pattern === 'string' || typeof maxLength === 'number') {
    const allowed = new RegExp(typeof pattern === 'string' ? pattern : '')
    const words = ['no such name!', '', ' ', '-', 'x'.repeat(300)].filter((word) => !allowed.test(word))
    const tooLong = typeof maxLength === 'number' ? ['x'.repeat(maxLength + 1)] : []
    return { outside: [...words, ...tooLong], inside: [] }
  }
  const isBounded = (bound: Json | undefined) => typeof bound === 'number' && Math.abs(bound) < Number.MAX_SAFE_INTEGER
  const outside = [
    ...(isBounded(minimum) ? [(minimum as number) - 1] : []),
    ...(isBounded(maximum) ? [(maximum as number) + 1] : []),
  ]
  return { outside, inside: [minimum, maximum].filter((bound) => isBounded(bound)) as Json[] }
}

/** One makes as many sandboxes, the other has another field above it. */
const notAtBounds = new Set(['count', 'minMemoryMB'])

function namesField(body: { error: unknown; field?: unknown }, field: string): boolean {
  const message = typeof body.error === 'string' ? body.error : (body.error as { message: string }).message
  return body.field === field || message.startsWith(field)
}

const bounded = operations.flatMap((operation) => {
  const fields = Object.entries(operation.fields as SchemaObject)
    .map(([name, schema]) => ({ name, ...edgesOf(schema as SchemaObject) }))
    .filter(({ outside }) => outside.length > 0)
  return fields.length === 0 ? [] : [{ operation, fields }]
})

test('limits: what a schema says of the bounds of a field is what the service checks', async () => {
  let checked = 0
  for (const { operation, fields } of bounded) {
    const made = await prepared(operation)
    const path = made.real(pathOf(operation))
    for (const { name, outside, inside } of fields) {
      const send = async (value: Json) => {
        const body = { ...(operation.body as SchemaObject), [name]: value }
        return await made.api.send(operation.method, path, { body: made.real(JSON.stringify(body)) })
      }
      for (const value of outside) {
        const answer = await send(value)
        const shown = `${operation.id} ${name}=${JSON.stringify(value).slice(0, 40)} → ${answer.status} ${answer.text.slice(0, 200)}`
        assert.ok(answer.status === 413 || (answer.status === 400 && namesField(answer.body, name)), shown)
        checked++
      }
      for (const value of notAtBounds.has(name) ? [] : inside) {
        const answer = await send(value)
        const shown = `${operation.id} ${name}=${JSON.stringify(value).slice(0, 40)} → ${answer.status} ${answer.text.slice(0, 200)}`
        assert.ok(answer.status !== 400 || !namesField(answer.body, name), shown)
      }
    }
  }
  assert.ok(checked > 50, String(checked))
})
