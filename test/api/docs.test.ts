/** The pages of the documentation at `/docs`, and what the server answers without them. */
import assert from 'node:assert/strict'
import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { gunzipSync } from 'node:zlib'
import { makeWorld, useWorld } from '../support/world.ts'

const style = 'p { color: inherit }\n'.repeat(100)
const world = useWorld({
  docs: {
    'index.html': '<h1>Documentation</h1>',
    '404.html': '<h1>No such page</h1>',
    'use/api.html': '<h1>The HTTP API</h1>',
    'use/how-to/vs-code.html': '<h1>VS Code</h1>',
    'assets/docs.css': style,
    'assets/docs.js': 'void 0',
    'assets/search.json': '[]',
  },
})
const open = { key: null }
const browser = { ...open, headers: { accept: 'text/html,*/*;q=0.8' } }

test('docs: pages are answered without a key, by a policy that allows no other origin and nothing inline', async () => {
  const { api } = world
  const pages = { '/docs': 'Documentation', '/docs/': 'Documentation', '/docs/use/api': 'The HTTP API' }
  for (const [path, title] of Object.entries({ ...pages, '/docs/use/how-to/vs-code?utm=1': 'VS Code' })) {
    const { status, headers, text } = await api.get(path, open)
    assert.deepEqual([status, text], [200, `<h1>${title}</h1>`], path)
    assert.equal(headers['content-type'], 'text/html; charset=utf-8')
    assert.equal(
      headers['content-security-policy'],
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    )
    assert.equal(headers['x-content-type-options'], 'nosniff')
    assert.equal(headers['cache-control'], 'no-cache')
  }
})

test('docs: files of the pages have their types, are compressed for who takes that, and are not sent again while they are the same', async () => {
  const { api } = world
  const types = { css: 'text/css; charset=utf-8', js: /^text\/javascript/, json: 'application/json; charset=utf-8' }
  for (const [path, type] of Object.entries({
    '/docs/assets/docs.css': types.css,
    '/docs/assets/search.json': types.json,
  })) {
    assert.equal((await api.raw('GET', path, open)).headers['content-type'], type)
  }
  assert.match((await api.raw('GET', '/docs/assets/docs.js', open)).headers['content-type'] ?? '', types.js)
  const plain = await api.get('/docs/assets/docs.css', open)
  assert.equal(plain.text, style)
  const packed = await api.get('/docs/assets/docs.css', { ...open, headers: { 'accept-encoding': 'br, gzip' } })
  assert.deepEqual([packed.headers['content-encoding'], gunzipSync(packed.bytes).toString()], ['gzip', style])
  assert.equal(packed.headers.vary, 'accept-encoding')
  for (const etag of [plain.headers.etag, packed.headers.etag]) {
    const known = await api.get('/docs/assets/docs.css', { ...open, headers: { 'if-none-match': String(etag) } })
    assert.deepEqual([known.status, known.bytes.length], [304, 0])
  }
  const refused = await api.get('/docs/assets/docs.css', { ...open, headers: { 'accept-encoding': 'gzip;q=0' } })
  assert.equal(refused.headers['content-encoding'], undefined)
})

test('docs: an address of the file or of the folder leads to that of the page', async () => {
  const { api } = world
  for (const [path, target] of Object.entries({
    '/docs/use/api.md': '/docs/use/api',
    '/docs/use/api.html': '/docs/use/api',
    '/docs/use/api/': '/docs/use/api',
    '/docs/api/': '/docs/api',
  })) {
    const { status, headers } = await api.get(path, open)
    assert.deepEqual([status, headers.location], [308, target], path)
  }
})

test('docs: an unknown page is a page to a browser and an error to programs, and no path opens a file', async () => {
  const { api } = world
  const secret = join(world.dataDir, 'secret')
  await writeFile(secret, 'of the server')
  const paths = ['none', 'use/none', 'a/b/c/d/e', '..%2fsecret', '//example.com/', '404']
  for (const path of [...paths, 'index', 'scalar.js', 'use', 'use/api/x', 'x/'.repeat(5000), '%00', '🙂']) {
    const program = await api.raw('GET', `/docs/${encodeURI(path).replaceAll('%25', '%')}`, open)
    assert.deepEqual([program.status, program.body?.code], [404, 'not_found'], path)
    const person = await api.raw('GET', `/docs/${encodeURI(path).replaceAll('%25', '%')}`, browser)
    assert.deepEqual([person.status, person.text], [404, '<h1>No such page</h1>'], path)
    assert.match(String(person.headers['content-security-policy']), /^default-src 'none'; script-src 'self'/)
  }
  assert.equal((await api.raw('POST', '/docs/use/api', { body: {} })).status, 404)
})

test('docs: pages that are not built are said to be, until they are; links in their folder lead nowhere', async (t) => {
  const { api, dataDir, close } = await makeWorld()
  t.after(() => close())
  const program = await api.get('/docs', open)
  assert.deepEqual([program.status, program.body.code], [404, 'not_found'])
  assert.match(program.body.error, /`npm run setup` builds them.*\/docs\/api/)
  for (const path of ['/docs', '/docs/use/api']) {
    const page = await api.raw('GET', path, browser)
    assert.equal(page.status, 404)
    assert.match(page.text, /npm run setup/)
    assert.match(page.text, /href="\/docs\/api"/)
  }
  assert.equal((await api.get('/docs/api', open)).status, 200)
  await mkdir(join(dataDir, 'docs'))
  await writeFile(join(dataDir, 'outside.html'), 'outside')
  await symlink(join(dataDir, 'outside.html'), join(dataDir, 'docs/outside.html'))
  await writeFile(join(dataDir, 'docs/index.html'), 'built')
  await writeFile(join(dataDir, 'docs/404.html'), 'none')
  assert.equal((await api.get('/docs', open)).text, 'built')
  assert.equal((await api.raw('GET', '/docs/outside', open)).status, 404)
})
