import assert from 'node:assert/strict'
import { test } from 'node:test'
import { idPrefixes, newId } from './id.ts'
import { nameFault } from './resource-name.ts'

test('name: lower case letters, digits and hyphens, 1 to 63 of them', () => {
  for (const name of ['a', '0', 'web', 'web-1', 'my-sandbox-', 'sb', 'x'.repeat(63), '1-2']) {
    assert.equal(nameFault(name), undefined, name)
  }
  const bad = [
    '',
    ' ',
    'a b',
    'a\n',
    '\n',
    'Web',
    '-web',
    'x'.repeat(64),
    'é'.repeat(127),
    'a.b',
    'a_b',
    'a/b',
    '../a',
    '\ufffd',
  ]
  for (const name of bad) assert.match(nameFault(name) ?? '', /^must be 1 to 63/, JSON.stringify(name))
})

test('name: none looks like an id, and no id is a name', () => {
  for (const prefix of idPrefixes) {
    assert.notEqual(nameFault(newId(prefix)), undefined, prefix)
    // A name never stands for one of these.
    if (prefix === 'mom_') assert.equal(nameFault('mom-s-kitchen'), undefined)
    else assert.notEqual(nameFault(`${prefix.replace('_', '-')}x`), undefined, prefix)
  }
})

test('name: a word of a route is none', () => {
  assert.match(nameFault('from-checkpoint') ?? '', /word of the API/)
})
