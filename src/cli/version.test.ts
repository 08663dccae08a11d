import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { glob, readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { ownVersion } from '../lib/version.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const read = (file: string) => readFile(root + file, 'utf8')

test('version: whatever states it states that of package.json', async () => {
  const version = ownVersion()
  const { stdout } = await promisify(execFile)(`${root}bin/atoll`, ['--version'])
  assert.equal(stdout, `${version}\n`)
  for (const file of ['sdk/package.json', 'src/agent/package.json', 'src/agent/package-lock.json']) {
    assert.equal((JSON.parse(await read(file)) as { version: string }).version, version, file)
  }
  const lock = JSON.parse(await read('package-lock.json')) as { packages: Record<string, { version: string }> }
  for (const own of ['', 'sdk']) assert.equal(lock.packages[own]?.version, version, `package-lock.json, "${own}"`)
  assert.equal((JSON.parse(await read('openapi.json')) as { info: { version: string } }).info.version, version)
  const [, newest] = /^## \[(\d[^\]]*)\]/m.exec(await read('CHANGELOG.md')) ?? []
  assert.equal(newest, version, 'the newest release in CHANGELOG.md')
  for await (const page of glob('docs/**/*.md', { cwd: root })) {
    for (const [, named] of (await read(page)).matchAll(/atoll-sdk-(\d[^\s/]*)\.tgz/g))
      assert.equal(named, version, page)
  }
})
