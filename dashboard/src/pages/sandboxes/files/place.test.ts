import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addressOf, childPlace, isWithin, keyOf, nameFault, parentPlace, placeOfAddress, plainPath } from './place.ts'

const base64 = (text: string) => Buffer.from(text, 'latin1').toString('base64')
const odd = { path: '/w/dir\\xfe', pathBase64: base64('/w/dir\xfe') }

test('place: children and parents, also of names that are no UTF-8', () => {
  assert.deepEqual(childPlace({ path: '/' }, 'a'), { path: '/a' })
  assert.deepEqual(childPlace({ path: '/a' }, 'b c'), { path: '/a/b c' })
  const child = childPlace(odd, 'in.txt')
  assert.deepEqual(child, { path: '/w/dir\\xfe/in.txt', pathBase64: base64('/w/dir\xfe/in.txt') })
  assert.deepEqual(parentPlace(child), odd)
  assert.deepEqual(parentPlace(odd), { path: '/w' })
  assert.deepEqual(parentPlace({ path: '/w' }), { path: '/' })
  assert.equal(parentPlace({ path: '/' }), undefined)
  assert.ok(isWithin(child, odd) && isWithin(child, { path: '/' }) && !isWithin(odd, child))
  assert.ok(!isWithin({ path: '/workspace' }, { path: '/work' }))
  // A name that is written like the escape is another.
  assert.notEqual(keyOf({ path: odd.path }), keyOf(odd))
})

test('place: an address leads back to its place', () => {
  for (const path of ['/', '/a', '/a/new\nline', '/a/\u202etxt', '/a/%2e', '/ spaced ']) {
    for (const isFolder of [path === '/', true]) {
      assert.deepEqual(placeOfAddress(addressOf({ path }, isFolder)), { place: { path }, isFolder }, path)
    }
  }
  assert.deepEqual(placeOfAddress(addressOf(odd, false))?.place.pathBase64, odd.pathBase64)
  for (const address of ['', 'a', 'base64:', 'base64:!!', `base64:${base64('a')}`, '/a\0'])
    assert.equal(placeOfAddress(address), undefined, address)
})

test('place: a typed path is made plain, and names that are none are told', () => {
  assert.equal(plainPath('/a//b/../c/./'), '/a/c')
  assert.equal(plainPath('/../..'), '/')
  assert.equal(plainPath('a'), undefined)
  for (const name of ['.', '..', 'a/b', 'a\0', 'é'.repeat(128)]) assert.notEqual(nameFault(name), undefined, name)
  for (const name of ['a', '...', '-rf', 'new\nline']) assert.equal(nameFault(name), undefined, name)
})
