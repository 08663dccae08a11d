import assert from 'node:assert/strict'
import { test } from 'node:test'
import { knownShapes, newPlaceholder, shapeFault } from './shape.ts'

const forms: Record<string, RegExp> = {
  sealed: /^osb_sealed_[0-9a-f]{32}$/,
  openai: /^sk-[A-Za-z0-9]{48}$/,
  anthropic: /^sk-ant-api03-[\w-]{93}AA$/,
  github: /^ghp_[A-Za-z0-9]{36}$/,
  'github-pat': /^github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}$/,
  gitlab: /^glpat-[A-Za-z0-9]{20}$/,
  npm: /^npm_[A-Za-z0-9]{36}$/,
  slack: /^xoxb-\d{12}-\d{12}-[A-Za-z0-9]{24}$/,
  'aws-access-key': /^AKIA[A-Z0-9]{16}$/,
  'aws-secret-key': /^[A-Za-z0-9]{40}$/,
  stripe: /^sk_live_[A-Za-z0-9]{24}$/,
  google: /^AIza[\w-]{35}$/,
  jwt: /^eyJ[\w-]+\.eyJ[\w-]+\.[\w-]{43}$/,
  uuid: /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
}

test('shape: each known one makes placeholders of its form, no two alike', () => {
  assert.deepEqual(Object.keys(forms).toSorted(), knownShapes.toSorted())
  for (const [shape, form] of Object.entries(forms)) {
    assert.equal(shapeFault(shape), undefined)
    const made = Array.from({ length: 20 }, () => newPlaceholder(shape))
    for (const one of made) assert.match(one, form)
    assert.equal(new Set(made).size, made.length)
  }
  const [header = '', payload = ''] = newPlaceholder('jwt').split('.')
  for (const part of [header, payload]) assert.ok(JSON.parse(Buffer.from(part, 'base64url').toString()))
})

test('shape: a pattern of text and random parts', () => {
  for (const [shape, form] of [
    ['my-{32}', /^my-[A-Za-z0-9]{32}$/],
    ['{hex:40}', /^[0-9a-f]{40}$/],
    ['A.{upper:10}~{lower:10}_{digit:10}', /^A\.[A-Z0-9]{10}~[a-z0-9]{10}_\d{10}$/],
    ['{base64url:43}', /^[\w-]{43}$/],
  ] as const) {
    assert.equal(shapeFault(shape), undefined, shape)
    assert.match(newPlaceholder(shape), form)
  }
})

test('shape: what is no pattern, is guessed too easily, is too long, or would be encoded, is refused', () => {
  for (const [shape, fault] of [
    ['', /must have at least 96 random bits/],
    ['plain-text', /it has 0/],
    ['{16}', /it has 95/],
    ['{hex:23}', /it has 92/],
    ['{digit:28}', /it has 93/],
    ['{300}', /at most 256/],
    [`{17}${'a'.repeat(250)}`, /at most 256/],
    ['{bits:40}', /must be one of sealed, openai/],
    ['{constructor:40}', /must be one of/],
    ['__proto__', /random bits/],
    ['{40', /must be one of/],
    ['a b{40}', /must be one of/],
    ['{40}/{40}', /must be one of/],
    ['{40}\n', /must be one of/],
    ['ü{40}', /must be one of/],
    ['"{40}"', /must be one of/],
  ] as const)
    assert.match(shapeFault(shape) ?? '', fault, shape)
  assert.equal(shapeFault('{17}'), undefined)
})
