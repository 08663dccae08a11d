/** What the reference of Dockerfiles requires, a rule each: the cases of `test/builds`, built by a real server and looked at in a sandbox. */
import assert from 'node:assert/strict'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { parseBuildCase } from './build-case.ts'
import { faultsOf, parseExpectation } from './build-expectations.ts'
import { runBuildCase } from './build-runner.ts'
import { AtollServer } from './server.ts'

const dir = join(import.meta.dirname, '../builds')
/** To run some: a regular expression of their names. */
const wanted = new RegExp(process.env['ATOLL_BUILD_CASES'] ?? '')
const atOnce = 4

// The modes of a context are those of its files.
process.umask(0o022)

const server = await AtollServer.startForFile({
  env: { ATOLL_REGISTRIES: 'none', ATOLL_LIMITS: JSON.stringify({ image: { buildsAtOnce: atOnce } }) },
})

describe('a build is as the reference of Dockerfiles says', { concurrency: atOnce }, () => {
  const names = globSync('*/*.build', { cwd: dir }).toSorted()
  for (const [n, file] of names.entries()) {
    const name = file.replace(/\.build$/, '')
    if (!wanted.test(name)) continue
    const found = parseBuildCase(readFileSync(join(dir, file), 'utf8'))
    test(`${name}: ${found.rule}`, async () => {
      assert.deepEqual(faultsOf(found.expectations, await runBuildCase(server, `case-${n}`, found)), [])
    })
  }
})

test('a case whose build is other than it expects fails, whatever it expects', async () => {
  const dockerfile = 'FROM base\nENV A=1\nWORKDIR /srv\nRUN echo a > a && ln -s a b && ln a c && echo said\nCMD ["x"]\n'
  const right = [
    'file /srv/a 0644 root:root "a\\n"',
    'link /srv/b -> a root:root',
    'dir /srv 0755',
    'absent /srv/d',
    'names /srv: a b c',
    'same /srv/a /srv/c',
    'env A=1',
    'unset B',
    'cwd /srv',
    'user root',
    'config {"cmd": ["x"], "entrypoint": null}',
    'log said',
    'no-log unsaid',
  ]
  const wrong = [
    'file /srv/a 0600',
    'file /srv/a root:daemon',
    'file /srv/a "b"',
    'file /srv/b',
    'file /srv/d',
    'link /srv/b -> c',
    'link /srv/a -> a',
    'dir /srv/a',
    'dir /srv 0700',
    'absent /srv/a',
    'names /srv: a b',
    'names /srv/d:',
    'same /srv/a /srv/b',
    'same /srv/a /srv/d',
    'env A=2',
    'env B=',
    'unset A',
    'cwd /',
    'user sandbox',
    'config {"cmd": ["y"]}',
    'config {"cmd": null}',
    'config {"entrypoint": []}',
    'log unsaid',
    'no-log said',
    'fails: x',
    'fails line 1: x',
  ]
  const text = `# all\n-- Dockerfile --\n${dockerfile}-- expect --\n${[...right, ...wrong].join('\n')}\n`
  const outcome = await runBuildCase(server, 'all', parseBuildCase(text))
  for (const line of right) assert.deepEqual(faultsOf([parseExpectation(line)], outcome), [], line)
  for (const line of wrong) assert.notDeepEqual(faultsOf([parseExpectation(line)], outcome), [], line)
  const failed = { ...outcome, error: { message: 'Words of it', line: 3 } }
  for (const line of ['fails: words', 'fails line 3: of', 'fails line *: it'])
    assert.deepEqual(faultsOf([parseExpectation(line)], failed), [], line)
  for (const line of ['fails: other', 'fails line 2: words', 'file /srv/a'])
    assert.notDeepEqual(faultsOf([parseExpectation(line)], failed), [], line)
  assert.notDeepEqual(faultsOf([parseExpectation('fails line *: it')], { ...failed, error: { message: 'it' } }), [])
})

test('a case that is not understood is no case', () => {
  const text = (expected: string) => `# rule\n-- Dockerfile --\nFROM base\n-- expect --\n${expected}\n`
  for (const line of ['', 'files /a', 'file', 'file /a 0644 huh', 'fails line x: y'])
    assert.throws(() => parseBuildCase(text(line)), assert.AssertionError, line)
})

test('builds leave nothing behind', async () => {
  for (const path of ['/api/sandboxes', '/api/images']) assert.deepEqual(await server.json('GET', path), [], path)
})
