/** Names of fields and parameters that a route does not know: refused by Atoll's own routes, told by those of OpenComputer's SDK. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { openApiDocument } from '../../src/http/server/openapi.ts'
import { routes } from '../../src/http/routes/index.ts'
import { operatorKey, useWorld } from '../support/world.ts'

const world = useWorld()

function toldOf(answer: { body: { error: unknown; code?: unknown } }): { code: unknown; message: string } {
  const { error, code } = answer.body
  return typeof error === 'string' ? { code, message: error } : (error as { code: unknown; message: string })
}

test('unknown names: every route refuses an unknown parameter before it does anything, or names it in its answer', async () => {
  const counts = { refused: 0, named: 0 }
  for (const { method, path, lenient, auth } of routes) {
    // Its query is that of another server.
    if (path.includes('/proxy/')) continue
    const target = path.replaceAll(/:\w+/g, 'x-none')
    const answer = await world.api.raw(method, `${target}?nonesuch=1&path=a&domain=a.b`, {
      ...(method === 'GET' || method === 'HEAD' ? {} : { body: {} }),
      ...(auth === 'key' ? {} : { headers: { accept: 'application/json' } }),
      ...(auth === 'operator' ? { key: operatorKey } : {}),
    })
    const shown = `${method} ${path} → ${answer.status} ${answer.text.slice(0, 200)}`
    if (lenient) {
      assert.match(String(answer.headers['x-atoll-ignored']), /\bnonesuch\b/, shown)
      counts.named++
      continue
    }
    assert.deepEqual([answer.status, answer.headers['x-error-code']], [400, 'invalid_request'], shown)
    assert.equal(answer.headers['x-atoll-ignored'], undefined, shown)
    if (method !== 'HEAD') assert.match(toldOf(answer).message, /^(nonesuch|path): /, shown)
    counts.refused++
  }
  assert.ok(counts.refused > 40 && counts.named > 60, JSON.stringify(counts))
})

test('unknown names: a call of OpenComputer’s SDK takes them, and its answer names them', async () => {
  const { api } = world
  const body = { timout: 60, memory: 512, nonsense: { a: [1] }, alias: 'x' }
  const { status, headers, body: started } = await api.post('/api/sandboxes?burst=1', body)
  assert.deepEqual([status, headers['x-atoll-ignored']], [201, 'burst, timout, memory, nonsense, alias'])
  const path = `/api/sandboxes/${started.sandboxID}`
  const plain = await api.get(path)
  assert.deepEqual([plain.headers['x-atoll-ignored'], plain.body.timeout], [undefined, 300])
  const slept = await api.post(`${path}/hibernate`, { memory: false })
  assert.deepEqual([slept.status, slept.headers['x-atoll-ignored']], [200, 'memory'])
  const wrong = await api.post(`${path}/timeout`, { timeout: 'x', tmeout: 1 })
  assert.deepEqual([wrong.status, wrong.headers['x-atoll-ignored']], [400, 'tmeout'])
  assert.match(String(wrong.headers['access-control-expose-headers']), /X-Atoll-Ignored/)
  assert.equal((await api.get(`${path}/files/list?path=/&a=1&a=2`)).headers['x-atoll-ignored'], 'a')
})

test('unknown names: hostile names are escaped in the header, and it is bounded', async () => {
  const { api } = world
  const names = ['a\r\nset-cookie: x', 'b,c d', '\u001b[31m', 'ü🙂', '', 'n'.repeat(1000)]
  const { status, headers, text } = await api.post('/api/sandboxes', Object.fromEntries(names.map((name) => [name, 1])))
  assert.equal(status, 201, text.slice(0, 300))
  const shown = ['a%0D%0Aset-cookie%3A%20x', 'b%2Cc%20d', '%1B%5B31m', '%C3%BC%F0%9F%99%82', '""']
  assert.equal(headers['x-atoll-ignored'], [...shown, `${'n'.repeat(64)}...`].join(', '))
  assert.equal(headers['set-cookie'], undefined)
  const many = Object.fromEntries(Array.from({ length: 900 }, (_, index) => [`${index}-${'🙂'.repeat(40)}`, 1]))
  const bounded = await api.post('/api/sandboxes', many)
  assert.equal(bounded.status, 201)
  assert.ok(String(bounded.headers['x-atoll-ignored']).length <= 1005)
  assert.match(String(bounded.headers['x-atoll-ignored']), /, \.\.\.$/)
})

test('unknown names: a WebSocket is told in the answer to its upgrade', async () => {
  const { api, port } = world
  const path = `/api/sandboxes/${await world.sandbox()}`
  const { body } = await api.post(`${path}/exec`, { cmd: 'true' })
  const socket = new WebSocket(`ws://127.0.0.1:${port}${path}/exec/${body.sessionID}?api_key=${api.key}&ofset=3`)
  const upgraded = Promise.withResolvers<string | string[] | undefined>()
  socket.on('upgrade', ({ headers }) => upgraded.resolve(headers['x-atoll-ignored']))
  socket.on('error', upgraded.reject)
  assert.equal(await upgraded.promise, 'ofset')
  socket.terminate()
})

test('unknown names: a route of Atoll refuses them with the one that was meant, and nothing is made', async () => {
  const { api } = world
  const session = { prompt: 'x', user_id: 'u' }
  const cases: [method: string, path: string, body: unknown, message: RegExp][] = [
    ['POST', '/v1/sessions', { ...session, user_mail: 'a@b' }, /^user_mail: .*did you mean "user_email"\?$/],
    ['POST', '/v1/sessions', { ...session, agent_config: { modle: 'x' } }, /^agent_config\.modle: .*"model"\?$/],
    ['GET', '/v1/sessions?user=u', undefined, /^user: .*did you mean "user_id"\?$/],
    ['DELETE', '/v1/sessions/session_none', { user_id: 'u' }, /^user_id: this request has no fields$/],
    ['POST', '/api/volumes', { name: 'a', size: 5 }, /^size: .*"sizeMB"\?$/],
    ['POST', '/api/volumes', { name: 'a', nonsense: 5 }, /^nonsense: there is no such field, only name, sizeMB, from$/],
    ['GET', '/api/sandboxes?statsu=running', undefined, /^statsu: .*"status"\?$/],
    ['GET', '/api/limits?a%0Ab', undefined, /^a\nb: this request has no parameters$/],
    ['PUT', '/api/sandboxes/sb-none/limits', { memory: 5 }, /^memory: .*"memoryMB"\?$/],
  ]
  for (const [method, path, body, message] of cases) {
    const answer = await api.raw(method, path, { body })
    assert.equal(answer.status, 400, `${method} ${path} ${answer.text}`)
    assert.deepEqual(
      [toldOf(answer).code, message.test(toldOf(answer).message)],
      ['invalid_request', true],
      answer.text,
    )
  }
  assert.deepEqual((await api.get('/api/volumes')).body, [])
  assert.deepEqual((await api.get('/v1/sessions?user_id=u')).body.data, [])
})

test('unknown names: inside of an object they are refused in every call', async () => {
  const { api } = world
  const step = (args: object) => ({
    image: { steps: [{ type: 'add_file', args: { path: '/a', content: '', ...args } }] },
  })
  const cases: [path: string, body: object, field: string][] = [
    ['/api/sandboxes', { image: { setps: [] } }, 'image.setps'],
    [
      '/api/sandboxes',
      { image: { steps: [{ type: 'run', args: { commands: ['a'] }, user: 'x' }] } },
      'image.steps.0.user',
    ],
    ['/api/sandboxes', step({ mode: '0755' }), 'image.steps.0.args.mode'],
    ['/api/sandboxes', { previewAuth: { tokn: 'x' } }, 'previewAuth.tokn'],
    ['/api/sandboxes', { volumes: [{ name: 'a', path: '/a', readonly: true }] }, 'volumes.0.readonly'],
    ['/api/sandboxes/sb-none/preview', { port: 1, authConfig: { tokn: 'x' } }, 'authConfig.tokn'],
    ['/api/snapshots', { name: 'a', image: { base: 'base', steps: [], memroy: true } }, 'image.memroy'],
  ]
  for (const [path, body, field] of cases) {
    const answer = await api.post(path, body)
    assert.deepEqual([answer.status, answer.body.field], [400, field], answer.text)
    assert.ok(answer.text.includes(field), answer.text)
  }
})

/** Objects with fields of their own that take others, by their place. */
function openObjects(value: unknown, place: string): string[] {
  if (typeof value !== 'object' || value === null) return []
  const { properties, additionalProperties } = value as Record<string, unknown>
  const isOpen = typeof properties === 'object' && additionalProperties !== false
  return [
    ...(isOpen ? [place] : []),
    ...Object.entries(value).flatMap(([key, item]) => openObjects(item, `${place}/${key}`)),
  ]
}

test('unknown names: no object inside of a body is open', () => {
  const { paths, components } = openApiDocument(routes)
  assert.deepEqual(openObjects([components.schemas['ImageManifest'], components.schemas['ImageStep']], ''), [])
  for (const [path, item] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(item)) {
      const { requestBody } = operation as { requestBody?: { content: Record<string, { schema: object }> } }
      const schema = requestBody?.content['application/json']?.schema ?? {}
      const open = openObjects((schema as { properties?: object }).properties, `${method} ${path}`)
      assert.deepEqual(open, [])
    }
  }
})
