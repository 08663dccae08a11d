import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { hostRules, layerOf, readPolicy, restricts, rulesMax } from './policy.ts'

test('policy: a text is a host, an address or a block, with a port if wanted', () => {
  const { allow } = readPolicy(
    {
      allow: [
        'API.Example.com.',
        '*.example.org:443',
        '198.51.100.7',
        '203.0.113.0/24:8000-8010',
        'bücher.example',
        '*',
      ],
    },
    'egress',
  )
  assert.deepEqual(allow, [
    { host: 'api.example.com' },
    { host: '*.example.org', ports: [[443, 443]] },
    { cidr: '198.51.100.7/32' },
    { cidr: '203.0.113.0/24', ports: [[8000, 8010]] },
    { host: 'xn--bcher-kva.example' },
    { host: '*' },
  ])
})

test('policy: a list is assumed where something is allowed, else everything is', () => {
  assert.equal(readPolicy({ allow: ['a.example'] }, 'egress').mode, 'list')
  assert.equal(readPolicy({ deny: ['a.example'] }, 'egress').mode, 'all')
  assert.equal(readPolicy({ mode: 'list' }, 'egress').mode, 'list')
})

const wrong: [rule: object | string, field: string][] = [
  ['https://a.example', 'egress.allow[0]'],
  ['a.example/path', 'egress.allow[0]'],
  ['a.example:0', 'egress.allow[0]'],
  ['a.example:70000', 'egress.allow[0]'],
  ['', 'egress.allow[0]'],
  ['.', 'egress.allow[0]'],
  ['a..b', 'egress.allow[0]'],
  ['*.*.example', 'egress.allow[0]'],
  ['a*.example', 'egress.allow[0]'],
  ['-a.example', 'egress.allow[0]'],
  ['a b.example', 'egress.allow[0]'],
  ['a\u0000.example', 'egress.allow[0]'],
  ['2001:db8::1', 'egress.allow[0]'],
  ['1.2.3.4/33', 'egress.allow[0]'],
  ['1.2.3', 'egress.allow[0]'],
  [`${'a'.repeat(64)}.example`, 'egress.allow[0]'],
  [{}, 'egress.allow[0]'],
  [{ host: 'a.example', cidr: '1.2.3.4/32' }, 'egress.allow[0]'],
  [{ host: '1.2.3.4' }, 'egress.allow[0].host'],
  [{ cidr: 'a.example' }, 'egress.allow[0].cidr'],
  [{ host: 'a.example', ports: [] }, 'egress.allow[0].ports'],
  [{ host: 'a.example', ports: ['9-8'] }, 'egress.allow[0].ports[0]'],
  [{ host: 'a.example', methods: ['GET /'] }, 'egress.allow[0].methods[0]'],
  [{ host: 'a.example', paths: ['v1'] }, 'egress.allow[0].paths[0]'],
  [{ host: 'a.example', paths: ['/v1?x'] }, 'egress.allow[0].paths[0]'],
]

for (const [rule, field] of wrong) {
  test(`policy: ${JSON.stringify(rule).slice(0, 60)} is refused, and the field is named`, () => {
    assert.throws(
      () => readPolicy({ allow: [rule] }, 'egress'),
      (error) => isServiceError(error, 'invalid_request') && error.details['field'] === field,
    )
  })
}

test('policy: allow rules without the mode list are refused, as they would mean nothing', () => {
  assert.throws(() => readPolicy({ mode: 'all', allow: ['a.example'] }, 'egress'), /egress\.allow/)
})

test('policy: more rules than a list may have are refused', () => {
  const deny = Array.from({ length: rulesMax + 1 }, (_, index) => `h${index}.example`)
  assert.throws(() => readPolicy({ deny }, 'egress'), /at most 1000 rules/)
})

test('policy: the rules of a layer are named after where they stand', () => {
  const layer = layerOf('creation', { ...readPolicy({ allow: ['a.example'], deny: ['b.example'] }, 'egress') })
  assert.deepEqual([layer.allow[0]?.id, layer.deny[0]?.id], ['creation.allow[0]', 'creation.deny[0]'])
  assert.equal(restricts(layer), true)
  assert.equal(restricts({ mode: 'all', deny: [] }), false)
})

test('policy: hosts of a list have no port', () => {
  assert.deepEqual(hostRules(['*.A.example'], 'egressAllowlist'), [{ host: '*.a.example' }])
  assert.throws(() => hostRules(['a.example:443'], 'egressAllowlist'), /egressAllowlist\[0\]/)
})
