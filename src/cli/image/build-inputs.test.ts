import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { buildArgsOf, secretsOf } from './build-inputs.ts'
import { UsageError } from '../exit-codes.ts'

test('build arguments: a name alone takes the value of the environment, or says nothing', () => {
  const environment = { HOME: '/home', EMPTY: '' }
  assert.deepEqual(buildArgsOf(['A=1', 'B=x=y', 'C=', 'HOME', 'EMPTY', 'NONE'], environment), {
    ...{ A: '1', B: 'x=y', C: '', HOME: '/home', EMPTY: '' },
  })
  assert.throws(() => buildArgsOf(['=1']), UsageError)
})

test('build secrets: of a file, of a variable, and by the id alone', async (t) => {
  const folder = await mkdtemp('/tmp/atoll-secrets-')
  t.after(() => rm(folder, { recursive: true }))
  const file = join(folder, 'npm=rc')
  await writeFile(file, Buffer.from([0, 255]))
  const environment = { TOKEN: 'secret', id: 'by id' }
  const specs = [
    `id=a,src=${file}`,
    `source=${file},id=b`,
    'id=c,env=TOKEN',
    'id',
    'type=env,id=TOKEN',
    'type=env,id=d,src=TOKEN',
  ]
  const secrets = await secretsOf(
    specs.map((one) => (one === 'id' ? 'id=id' : one)),
    environment,
  )
  const bytes = Buffer.from([0, 255])
  assert.deepEqual(secrets, { a: bytes, b: bytes, c: 'secret', id: 'by id', TOKEN: 'secret', d: 'secret' })
  assert.deepEqual(await secretsOf([`id=${file}`], {}), { [file]: bytes })
  for (const spec of [
    '',
    'a',
    'src=x',
    'id=',
    'id=a,mode=3',
    'id=a,src=b,env=c',
    'id=a,env=NONE',
    'id=a,type=env',
    'id=a,type=x',
  ])
    await assert.rejects(secretsOf([spec], environment), UsageError, spec)
  await assert.rejects(secretsOf(['id=none,src=/nowhere'], environment), { code: 'ENOENT' })
})
