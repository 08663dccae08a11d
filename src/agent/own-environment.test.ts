import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'

const script = `
const { takeFromEnvironment } = await import(process.argv[1])
const { execFileSync } = await import('node:child_process')
const { readFileSync } = await import('node:fs')
const taken = [takeFromEnvironment('SECRET'), takeFromEnvironment('ABSENT'), takeFromEnvironment('SECRET')]
const atStart = readFileSync('/proc/self/environ', 'utf8')
const child = execFileSync('env', { encoding: 'utf8' })
const { SECRET, SECRET_2, LAST, TEXT } = process.env
console.log(JSON.stringify({ taken, atStart, child, left: { SECRET, SECRET_2, LAST, TEXT } }))
`

test('own environment: a variable that is taken is in no environment any more, and all others stay as they are', () => {
  const others = { TEXT: 'é SECRET=no', SECRET_2: 'two', LAST: 'three' }
  const output = execFileSync(
    process.execPath,
    ['--input-type=module', '-e', script, join(import.meta.dirname, 'own-environment.ts')],
    { encoding: 'utf8', env: { PATH: process.env['PATH'], SECRET: 'x=hidden', ...others } },
  )
  const { taken, atStart, child, left } = JSON.parse(output) as Record<'taken' | 'atStart' | 'child' | 'left', string>
  assert.deepEqual(taken, ['x=hidden', '', ''])
  assert.deepEqual(left, others)
  for (const environment of [atStart, child]) {
    assert.doesNotMatch(environment, /hidden/)
    for (const [name, value] of Object.entries(others)) assert.ok(environment.includes(`${name}=${value}`))
  }
})
