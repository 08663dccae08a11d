/** The SDK as its users get it: packed, installed from its tarball, run in old and new Node and in a browser. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { arch } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { listen } from '../../support/listen.ts'
import { launchBrowser, visit } from '../browser.ts'
import { AtollServer } from '../server.ts'

const runFile = promisify(execFile)
const projectDir = join(import.meta.dirname, '../../..')
const oldNode = `node-linux-${arch()}@20.20.2`

const server = await AtollServer.startForFile()
let folder: string
let packed: string
/** A sandbox and a turn of an agent: half a minute on a busy machine. */
const pageMsMax = 180_000

before(async () => {
  folder = await mkdtemp('/var/tmp/atoll-sdk-')
  // As setup does, of the sources as they are now.
  await runFile('npm', ['run', '--silent', 'sdk:pack'], { cwd: projectDir })
  packed = join(folder, 'node_modules/atoll-sdk')
  await writeFile(join(folder, 'package.json'), '{"name":"reader","private":true,"type":"module"}')
  const install = ['install', '--no-audit', '--no-fund', `${server.url}/sdk.tgz`, oldNode]
  await runFile('npm', install, { cwd: folder })
})
after(() => rm(folder, { recursive: true, force: true }))

/** The scripts of docs/use/sdk.md by the names that their first lines give. */
async function examples(): Promise<[name: string, text: string][]> {
  const text = await readFile(join(projectDir, 'docs/use/sdk.md'), 'utf8')
  const blocks = [...text.matchAll(/^```js\n\/\/ (\S+)\n(.*?)^```$/gms)]
  return blocks.map(([, name = '', script = '']) => [name, script])
}

test('the package holds JavaScript and declarations, and one dependency', async () => {
  const { dependencies } = JSON.parse(await readFile(join(packed, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>
  }
  assert.deepEqual(Object.keys(dependencies), ['ws'])
  assert.deepEqual((await readdir(packed)).toSorted(), ['README.md', 'dist', 'package.json'])
  const files = await readdir(join(packed, 'dist/sdk/src'))
  assert.ok(files.includes('index.js') && files.includes('index.d.ts') && files.includes('browser.js'))
})

async function check(program: string, libraries: string): Promise<void> {
  await writeFile(join(folder, 'program.ts'), program)
  const options = ['--strict', '--noEmit', '--target', 'es2022', '--module', 'nodenext', '--types', '']
  const checks = ['--skipLibCheck', 'false', '--lib', libraries]
  await runFile(join(projectDir, 'node_modules/.bin/tsc'), [...options, ...checks, 'program.ts'], { cwd: folder })
}

test('its types are those of a strict project', async () => {
  const program = `
import { NotFoundError, Sandbox, type RunResult } from 'atoll-sdk'
const sandbox: Sandbox = await Sandbox.create({ ttlSeconds: 60 })
const result: RunResult = await sandbox.run('true')
// @ts-expect-error: the timeout of a command has another name
await sandbox.run('true', { ttlSeconds: 60 })
export const code: number = result.exitCode
export const isMissing = (error: unknown) => error instanceof NotFoundError`
  await check(program, 'es2024,dom,dom.asynciterable')
})

test('its types check in a project that knows neither the DOM nor Node', async () => {
  const program = `
import { Sandbox, Session } from 'atoll-sdk'
const sandbox: Sandbox = await Sandbox.create({ ttlSeconds: 60 })
await sandbox.fetch((await sandbox.waitForPort(3000)).port, '/')
// @ts-expect-error: there is no such option
await Sandbox.create({ ttl: 60 })
for await (const { data } of (await Session.connect('x')).events()) data.type satisfies string`
  await check(program, 'es2022')
})

for (const [version, path] of [
  ['20', () => join(folder, `node_modules/node-linux-${arch()}/bin/node`)],
  ['24', () => process.execPath],
] as const) {
  test(`the examples of the documentation run in Node ${version}`, async () => {
    const all = await examples()
    assert.deepEqual(
      all.map(([name]) => name),
      [
        ...['sandbox.mjs', 'names.mjs', 'files.mjs', 'image.mjs', 'dockerfile.mjs', 'fork.mjs', 'volume.mjs'],
        ...['egress.mjs', 'secret.mjs', 'session.mjs', 'events.mjs'],
      ],
    )
    const said: Record<string, string> = {}
    for (const [name, script] of all) {
      await writeFile(join(folder, name), script)
      const env = { ATOLL_URL: server.url, ATOLL_API_KEY: server.key }
      const { stdout } = await runFile(path(), [name], { cwd: folder, env })
      said[name] = stdout
    }
    assert.match(said['sandbox.mjs'] ?? '', /^42 0\nhello\nstdout 1[^]*3\nhttp:\/\/sb-\w+-p3000\.preview\.localhost/)
    assert.equal(said['names.mjs'], 'default\ntrue\nweb\n')
    assert.equal(said['files.mjs'], 'file 9 false\nSOME TEXT\n')
    assert.match(said['image.mjs'] ?? '', /^building 1 step [^]*\nprepared\n$/)
    assert.match(said['dockerfile.mjs'] ?? '', /^files sent: [02]\nhello\n2\n$/)
    assert.equal(said['fork.mjs'], 'prepared\n'.repeat(3))
    assert.match(said['egress.mjs'] ?? '', /^confined 4\ndenied paste\.example 53\n$/)
    assert.match(said['secret.mjs'] ?? '', /GITHUB_TOKEN[^]*api\.github\.com/)
    assert.match(said['session.mjs'] ?? '', /^http:\/\/sb-/)
    const told = ['created', 'ready', 'hibernated', 'stopped'].map((name) => `sandbox.${name} key\n`)
    assert.equal(said['events.mjs'], told.join(''))
    assert.deepEqual(await server.json('GET', '/api/sandboxes?status=running'), [])
    assert.deepEqual(await server.json('GET', '/api/checkpoints?owner=client'), [])
  })
}

test('in a browser it creates, runs with output as it comes, and follows a session', async () => {
  const program = `
    import { Atoll, Sandbox, Session, NotFoundError } from '/dist/sdk/src/browser.js'
    const client = new Atoll({ url: ${JSON.stringify(server.url)}, apiKey: ${JSON.stringify(server.key)} })
    const sandbox = await Sandbox.create({ client, ttlSeconds: 60 })
    const pieces = []
    const { exitCode } = await sandbox.run('echo one; echo two; exit 3', {
      onOutput: ({ data }) => pieces.push(new TextDecoder().decode(data)),
    })
    await sandbox.files.write('/root/a.txt', new Blob(['from a page']))
    const text = await sandbox.files.readText('/root/a.txt')
    const missing = await sandbox.files.read('/root/none').catch((error) => error instanceof NotFoundError)
    await sandbox.delete()
    const session = await Session.create({ client, prompt: 'run: echo one', userId: 'ada' })
    const types = new Set()
    for await (const { data } of session.events()) {
      types.add(data.type)
      if (data.type === 'turn_complete') break
    }
    await session.end()
    document.title = JSON.stringify({ exitCode, output: pieces.join(''), text, missing, types: [...types] })`
  const site = createServer((request, response) => {
    const isFile = request.url?.startsWith('/dist/') === true
    response.setHeader('Content-Type', isFile ? 'text/javascript' : 'text/html; charset=utf-8')
    if (!isFile) return void response.end(`<!doctype html><title></title><script type="module">${program}</script>`)
    return void readFile(join(packed, request.url ?? '')).then(
      (file) => response.end(file),
      () => response.writeHead(404).end(),
    )
  })
  const port = await listen(site)
  const browser = await launchBrowser()
  try {
    const page = await browser.newPage()
    const faults: string[] = []
    page.on('pageerror', (error) => faults.push(error.message))
    await visit(page, `http://127.0.0.1:${port}/`)
    await page
      .waitForFunction('document.title !== ""', undefined, { timeout: pageMsMax })
      .catch((error: unknown) => assert.fail(`${String(error)} ${faults.join()}`))
    const told = JSON.parse(await page.title()) as Record<string, unknown>
    const { types, ...rest } = told
    assert.deepEqual(rest, { exitCode: 3, output: 'one\ntwo\n', text: 'from a page', missing: true })
    assert.ok((types as string[]).includes('turn_complete'))
  } finally {
    await browser.close()
    site.close()
  }
})
