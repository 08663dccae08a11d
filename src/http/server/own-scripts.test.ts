import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { assertOwnScript } from './own-scripts.ts'

function isRefused(url: string, destination: string, site = 'same-origin'): boolean {
  try {
    assertOwnScript({ url, headers: { 'sec-fetch-dest': destination, 'sec-fetch-site': site } })
    return false
  } catch (error) {
    assert.ok(isServiceError(error, 'forbidden'))
    return true
  }
}

test('own scripts: a page of the server runs no file of a sandbox', () => {
  const file = '/api/sandboxes/sb-1/files?path=/x.js'
  for (const destination of ['script', 'style', 'worker', 'sharedworker', 'serviceworker', 'object', 'embed']) {
    assert.ok(isRefused(file, destination), destination)
    assert.ok(isRefused('/api/sandboxes/sb-1/files/download?path=/x.js&signature=x', destination))
    assert.ok(!isRefused('/assets/index-1.js', destination))
    assert.ok(!isRefused('/docs/api/scalar.js', destination))
  }
  assert.ok(isRefused('/assets', 'script'))
  assert.ok(isRefused('//assets/x.js', 'script'))
})

test('own scripts: data of the API, pictures, and pages of other origins are not meant', () => {
  const file = '/api/sandboxes/sb-1/files?path=/x.js'
  for (const destination of ['empty', 'document', 'image', 'video', 'iframe', ''])
    assert.ok(!isRefused(file, destination))
  assert.ok(!isRefused(file, 'script', 'cross-site'))
  assert.doesNotThrow(() => assertOwnScript({ url: file, headers: {} }))
})
