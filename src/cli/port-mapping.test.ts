import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseMapping } from './port-mapping.ts'

test('port mapping: the port here stands before that of the sandbox, the address here before both', () => {
  const here = '127.0.0.1'
  assert.deepEqual(parseMapping('3000'), { bind: here, local: 3000, remote: 3000 })
  assert.deepEqual(parseMapping('8080:3000'), { bind: here, local: 8080, remote: 3000 })
  assert.deepEqual(parseMapping('0:3000'), { bind: here, local: 0, remote: 3000 })
  assert.deepEqual(parseMapping('0.0.0.0:80:3000'), { bind: '0.0.0.0', local: 80, remote: 3000 })
  assert.deepEqual(parseMapping('[::1]:80:3000'), { bind: '::1', local: 80, remote: 3000 })
  assert.deepEqual(parseMapping('*:80:3000'), { bind: undefined, local: 80, remote: 3000 })
})

test('port mapping: what is none is refused by its name', () => {
  for (const text of ['', '0', '80:0', '65536', '1:65536', '65536:1', 'a:1', '::1:80:3000', '1:2:', '-1', '3000/tcp']) {
    assert.throws(
      () => parseMapping(text),
      (error: Error) => error.message.startsWith(`${JSON.stringify(text)} is no port`),
    )
  }
})
