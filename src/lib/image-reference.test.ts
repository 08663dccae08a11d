import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseImageReference } from './image-reference.ts'

const digest = `sha256:${'0a'.repeat(32)}`

test('image reference: registry, repository, tag and digest are told apart', () => {
  assert.deepEqual(parseImageReference('Registry.example.com:5000/team/app:1.2'), {
    registry: 'registry.example.com:5000',
    repository: 'team/app',
    tag: '1.2',
  })
  assert.deepEqual(parseImageReference('localhost/a'), { registry: 'localhost', repository: 'a', tag: 'latest' })
  assert.deepEqual(parseImageReference(`[::1]:5000/a@${digest}`), { registry: '[::1]:5000', repository: 'a', digest })
  assert.deepEqual(parseImageReference(`r.io/a__b/c-d:t@${digest}`), {
    registry: 'r.io',
    repository: 'a__b/c-d',
    tag: 't',
    digest,
  })
})

test('image reference: what names no registry, is a path or has another form is none', () => {
  const wrong = ['', 'alpine', 'alpine:3', '/etc/passwd', 'r.io/', 'r.io//a', 'r.io/A', 'r.io/a:', 'r.io/a:b:c']
  const more = ['r.io/a@', 'r.io/a@sha256:0a', `r.io/a@${digest}@${digest}`, 'r.io/../a', 'r.io/a b', 'user@r.io/a']
  const odd = ['-r.io/a', 'r.io:123456/a', 'r.io/a:.x', 'oci:/etc:x', 'dir:/etc', `r.io/${'a'.repeat(512)}`, 'r.io/a\n']
  for (const text of [...wrong, ...more, ...odd]) assert.equal(parseImageReference(text), undefined, text)
})
