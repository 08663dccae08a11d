import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../errors.ts'
import { assertVolumeName, assertVolumePaths } from './volume-input.ts'

/** The field at fault, if any. */
function fault(check: () => void): unknown {
  try {
    check()
    return undefined
  } catch (error) {
    assert.ok(error instanceof ServiceError && error.code === 'invalid_request', String(error))
    return error.details['field']
  }
}

const pathFault = (...paths: string[]) =>
  fault(() =>
    assertVolumePaths(
      paths.map((path, index) => ({ name: `v${index}`, path })),
      4,
    ),
  )

test('volume: a name is of lower-case letters, digits and a few others', () => {
  for (const name of ['a', '0', 'a.b_c-d', `a${'b'.repeat(62)}`]) {
    assert.equal(
      fault(() => assertVolumeName(name, 'name')),
      undefined,
      name,
    )
  }
  for (const name of ['', 'A', '.a', '-a', 'a@b', 'a/b', 'ä', 'a\0', 'a\n', 'a'.repeat(64)]) {
    assert.equal(
      fault(() => assertVolumeName(name, 'name')),
      'name',
      name,
    )
  }
})

test('volume: a path is absolute and normal, and not of the host', () => {
  const legal = ['/data', '/a b/c', '/procession', '/etc/app', '/root/.cache', '/mnt/ä', '/...', '/run/x']
  for (const path of legal) assert.equal(pathFault(path), undefined, path)
  const illegal = [
    '',
    'data',
    './data',
    '/',
    '//',
    '/data/',
    '/a//b',
    '/a/./b',
    '/a/..',
    '/../a',
    '/a\0',
    '/a\nb',
    '/\ud800',
  ]
  const own = ['/proc', '/proc/1', '/sys', '/sys/fs', '/dev', '/dev/shm', '/.atoll', '/.atoll/run']
  const hiding = ['/etc', '/etc/hosts', '/etc/resolv.conf/x']
  const long = [`/${'a'.repeat(256)}`, '/abcdefg'.repeat(129)]
  for (const path of [...illegal, ...own, ...hiding, ...long]) assert.equal(pathFault(path), 'volumes.0.path', path)
})

test('volume: those of one sandbox are few, each once, and none lies in another', () => {
  assert.equal(pathFault('/a', '/b', '/ab', '/c/a'), undefined)
  assert.equal(pathFault('/a', '/b', '/a'), 'volumes.2.path')
  assert.equal(pathFault('/a', '/a/b'), 'volumes.1.path')
  assert.equal(pathFault('/a/b', '/a'), 'volumes.1.path')
  assert.equal(pathFault('/a', '/b', '/c', '/d', '/e'), 'volumes')
  const twice = ['/a', '/b'].map((path) => ({ name: 'same', path }))
  assert.equal(
    fault(() => assertVolumePaths(twice, 4)),
    'volumes.1.name',
  )
})
