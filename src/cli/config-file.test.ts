import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, test } from 'node:test'
import { configPath, readConfig, writeConfig } from './config-file.ts'

const dir = await mkdtemp(join(tmpdir(), 'atoll-config-'))
after(() => rm(dir, { recursive: true }))

test('config file: what is written is read again, by its owner alone, and nothing lies beside it', async () => {
  const path = configPath({ XDG_CONFIG_HOME: join(dir, 'new') })
  assert.deepEqual(await readConfig(path), { contexts: {} })
  const config = { current: 'a', contexts: { a: { url: 'http://a', apiKey: 'k' }, b: { url: 'http://b' } } }
  await writeConfig({ contexts: {} }, path)
  await writeConfig(config, path)
  assert.deepEqual(await readConfig(path), config)
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  assert.deepEqual(await readdir(dirname(path)), ['config.json'])
})

test('config file: a broken one is named and left as it is', async () => {
  const path = join(dir, 'broken.json')
  for (const text of ['{', '[]', '{"contexts": {"a": {}}}', '{"current": 1}']) {
    await writeFile(path, text)
    await assert.rejects(readConfig(path), (error: Error) => error.message.startsWith(`${path} is no configuration`))
    assert.equal(await readFile(path, 'utf8'), text)
  }
})
