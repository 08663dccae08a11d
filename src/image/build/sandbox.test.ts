import assert from 'node:assert/strict'
import { test } from 'node:test'
import { failed } from './sandbox.ts'

test('build: the error of a step has the last whole lines of its output', () => {
  const place = { number: 2, type: 'run', line: 7 }
  const messageOf = (stderr: string) => failed(place, { exitCode: 3, stderr }).message
  const begin = 'step 2 (run, line 7) exited with 3'
  assert.equal(messageOf(' \n'), begin)
  assert.equal(messageOf('one\ntwo\n'), `${begin}: one\ntwo`)
  const [long, last] = ['a'.repeat(400), 'b'.repeat(300)]
  assert.equal(messageOf(`${long}\n${last}\n`), `${begin}: ${last}`)
  assert.equal(messageOf(`${long}\n${'b'.repeat(500)}`), `${begin}: ${'b'.repeat(500)}`)
  assert.equal(messageOf('c'.repeat(501)), `${begin}: …${'c'.repeat(500)}`)
})
