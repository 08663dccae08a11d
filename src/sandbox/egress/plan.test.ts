import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { OpenedSecret } from '../ports/secret-source.ts'
import { changedEnvironment, clientEnvs, environmentOf } from './environment.ts'
import { inheritPlaceholders, placeholdersFor } from './placeholders.ts'
import { hostsOf, isListed, layersOf, needsAuthority, statedEgress } from './plan.ts'
import { readPolicy } from './policy.ts'
import type { SandboxEgress } from './state.ts'

const egress = (more: Partial<SandboxEgress> = {}): SandboxEgress => ({
  ...{ stores: [], inheritedStores: 0, inline: [], placeholders: {} },
  ...more,
})
const secret = (name: string, more: Partial<OpenedSecret> = {}): OpenedSecret => ({
  ...{ name, value: `value of ${name}`, allowedHosts: ['api.example'], places: ['header'], shape: 'sealed' },
  ...more,
})
const placed = (...names: string[]) =>
  Object.fromEntries(names.map((name) => [name, { own: `own-${name}`, inherited: [`old-${name}`] }]))

test('plan: a sandbox without policy and secrets is open', () => {
  assert.deepEqual(statedEgress(undefined, [], [], undefined), { state: 'open' })
  assert.deepEqual(
    statedEgress(
      egress({ policy: readPolicy({}, 'egress') }),
      layersOf(egress({ policy: readPolicy({}, 'egress') }), undefined, []),
      [],
      undefined,
    ).state,
    'open',
  )
})

test('plan: a sandbox with secrets alone is proxied, one with a denial or a list is confined', () => {
  const withSecret = egress({ placeholders: placed('A') })
  assert.equal(statedEgress(withSecret, [], [secret('A')], undefined).state, 'proxied')
  for (const input of [{ mode: 'none' as const }, { allow: ['a.example'] }, { deny: ['a.example'] }]) {
    const of = egress({ policy: readPolicy(input, 'egress') })
    assert.equal(statedEgress(of, layersOf(of, undefined, []), [], undefined).state, 'confined', JSON.stringify(input))
  }
})

test('plan: a sandbox whose policies only record is proxied, as what the host cannot read passes', () => {
  const of = egress({ policy: readPolicy({ deny: ['a.example'], logOnly: true }, 'egress') })
  assert.equal(statedEgress(of, layersOf(of, undefined, []), [], undefined).state, 'proxied')
})

test('plan: what organisation, image, stores and creation say stands in layers of their own, all of which must let pass', () => {
  const of = egress({
    imagePolicy: readPolicy({ deny: ['image.example'] }, 'egress'),
    policy: readPolicy({ allow: ['*'] }, 'egress'),
    hosts: ['a.example'],
  })
  const layers = layersOf(of, readPolicy({ deny: ['o.example'] }, 'egress'), [
    { id: 'ss-1', name: 's', egressAllowlist: ['b.example', 'a.example'] },
  ])
  assert.deepEqual(
    layers.map(({ source, mode }) => [source, mode]),
    [
      ['organisation', 'all'],
      ['image', 'all'],
      ['store', 'list'],
      ['creation', 'list'],
    ],
  )
  assert.deepEqual(
    layers[2]?.allow.map(({ id, host }) => [id, host]),
    [
      ['store.allow[0]', 'a.example'],
      ['store.allow[1]', 'b.example'],
    ],
  )
})

test('plan: a secret without hosts goes to what a list names, and nowhere without a list', () => {
  const bare = secret('A', { allowedHosts: [] })
  const list = layersOf(egress({ hosts: ['a.example'] }), undefined, [])
  const recorded = layersOf(
    egress({ policy: readPolicy({ allow: ['a.example'], logOnly: true }, 'egress') }),
    undefined,
    [],
  )
  assert.deepEqual([hostsOf(bare, undefined, list), hostsOf(bare, undefined, [])], [['*'], []])
  assert.equal(isListed(recorded), false, 'a list that only records keeps nothing in')
  assert.deepEqual(hostsOf(secret('A'), egress({ secretHosts: { A: ['b.example'] } }), []), ['b.example'])
})

test('plan: a sandbox that was told of the proxy is proxied, also when nothing is left of its secrets', () => {
  assert.equal(statedEgress(egress({ stores: ['s'] }), [], [], undefined).state, 'proxied')
})

test('plan: a secret that the sandbox has no placeholder for is not given to its host', () => {
  const { plan } = statedEgress(egress({ placeholders: placed('A') }), [], [secret('A'), secret('B')], undefined)
  assert.deepEqual(
    plan?.secrets.map(({ name, placeholders }) => [name, placeholders]),
    [['A', ['own-A', 'old-A']]],
  )
})

test('plan: a secret that signs comes with the id of its access key, and is not used without it', () => {
  const signs = secret('KEY', { sign: { type: 'aws-sigv4', accessKeyId: 'ID' } })
  const both = statedEgress(egress({ placeholders: placed('KEY', 'ID') }), [], [signs, secret('ID')], undefined)
  const planned = both.plan?.secrets.find(({ name }) => name === 'KEY')
  assert.deepEqual(planned?.sign, { type: 'aws-sigv4', access_key_placeholder: 'own-ID', access_key: 'value of ID' })
  const alone = statedEgress(egress({ placeholders: placed('KEY') }), [], [signs], undefined)
  assert.deepEqual(alone.plan?.secrets, [])
})

test('plan: a secret of a name that every object has is hidden by a variable of the client like any other', () => {
  const of = egress({ placeholders: placed('A'), secretHosts: { A: ['b.example'] } })
  const { plan } = statedEgress(of, [], [secret('constructor'), secret('A')], undefined)
  assert.deepEqual(
    plan?.secrets.map(({ name }) => name),
    ['A'],
  )
  assert.deepEqual(hostsOf(secret('constructor'), of, []), ['api.example'])
})

test('plan: an authority is needed by secrets, and by rules that read requests', () => {
  assert.equal(needsAuthority(egress({ placeholders: placed('A') }), []), true)
  const reads = (rule: object) =>
    layersOf(egress({ policy: readPolicy({ allow: [{ host: 'a.example', ...rule }] }, 'egress') }), undefined, [])
  assert.equal(needsAuthority(egress(), reads({ paths: ['/v1/*'] })), true)
  assert.equal(needsAuthority(egress(), reads({ inspect: true })), true)
  assert.equal(needsAuthority(egress(), reads({ ports: [443] })), false)
})

test('placeholders: a fork gets new ones, and what its processes hold is inherited', () => {
  let made = 0
  const make = () => `new-${(made += 1)}`
  const inherited = inheritPlaceholders(placed('A', 'GONE'), [secret('A'), secret('B')], make)
  assert.deepEqual(inherited, { A: { own: 'new-1', inherited: ['own-A', 'old-A'] } })
  const all = placeholdersFor([secret('A'), secret('B'), secret('C')], inherited, make, new Set(['C']))
  assert.deepEqual(all, { A: { own: 'new-1', inherited: ['own-A', 'old-A'] }, B: { own: 'new-2', inherited: [] } })
})

test('placeholders: a name that objects have anyway is no placeholder', () => {
  const all = placeholdersFor([secret('constructor')], {}, () => 'made')
  assert.deepEqual(all['constructor'], { own: 'made', inherited: [] })
})

test('environment: a store brings proxy and certificates, a policy alone brings nothing', () => {
  assert.deepEqual(environmentOf(egress({ policy: readPolicy({ allow: ['a.example'] }, 'egress') })), {})
  const envs = environmentOf(egress({ placeholders: placed('TOKEN'), stores: ['s'], authorityId: 'ca-1' }))
  assert.equal(envs['TOKEN'], 'own-TOKEN')
  assert.equal(envs['HTTPS_PROXY'], 'http://169.254.169.253:3128')
  assert.match(envs['NO_PROXY'] ?? '', /169\.254\.169\.254/)
  assert.equal(envs['NODE_EXTRA_CA_CERTS'], '/usr/local/share/ca-certificates/opensandbox-proxy.crt')
})

test('environment: a change replaces what it made, and keeps what the client has set', () => {
  const before = egress({ placeholders: placed('A', 'B') })
  const after = egress({ placeholders: placed('B', 'C') })
  const envs = { ...environmentOf(before), OWN: 'x', HTTP_PROXY: 'http://mine' }
  const changed = changedEnvironment(envs, before, after)
  assert.deepEqual(
    [changed['A'], changed['B'], changed['C'], changed['OWN'], changed['HTTP_PROXY']],
    [undefined, 'own-B', 'own-C', 'x', 'http://mine'],
  )
  assert.deepEqual(clientEnvs(envs, before), { OWN: 'x', HTTP_PROXY: 'http://mine' })
})
