import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseImageReference, withRegistry } from './image-reference.ts'

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

test('image reference: one without a registry is of Docker Hub', () => {
  const full: Record<string, string> = {
    'python:3.12': 'docker.io/library/python:3.12',
    'team/tools': 'docker.io/team/tools',
    'docker.io/python': 'docker.io/python',
    'ghcr.io/team/tools:1': 'ghcr.io/team/tools:1',
    'localhost/tools': 'localhost/tools',
    'localhost:5000/tools:1': 'localhost:5000/tools:1',
    'python@sha256:ab': 'docker.io/library/python@sha256:ab',
  }
  for (const [short, reference] of Object.entries(full)) assert.equal(withRegistry(short), reference)
})
