import assert from 'node:assert/strict'
import { test } from 'node:test'
import { silentLog } from '../../lib/log.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import type { EgressPolicy } from './policy.ts'
import type { EgressStore, StoredAuthority } from '../ports/egress-store.ts'
import type { OpenedSecret, SecretChain, SecretSource } from '../ports/secret-source.ts'
import type { Sandbox } from '../sandbox.ts'
import { Egress, type EgressOptions } from './egress.ts'

interface FakeStore {
  name: string
  hosts?: string[]
  secrets?: Record<string, { value: string; hosts: string[] }>
}

/** Fakes of the ports; `given` may be changed between calls. */
function setup(given: { stores?: FakeStore[]; unavailable?: string; failing?: string } = {}) {
  const sandboxes = new Map<string, Sandbox>()
  const authorities = new Map<string, StoredAuthority>()
  const policies = new Map<string, EgressPolicy | undefined>()
  const refreshed: string[] = []
  const files = new Map<string, string>()
  let made = 0

  const chainOf = ({ stores }: { stores: readonly string[] }) => {
    const found = stores.flatMap((name) => given.stores?.find((store) => store.name === name) ?? [])
    const secrets = new Map(
      found.flatMap((store) =>
        Object.entries(store.secrets ?? {}).map(([name, { value, hosts }]): [string, OpenedSecret] => [
          name,
          { name, value, allowedHosts: hosts, places: ['header'], shape: 'sealed' },
        ]),
      ),
    )
    return {
      stores: found.map(({ name, hosts = [] }) => ({ id: `ss-${name}`, name, egressAllowlist: hosts })),
      missing: stores.filter((name) => !found.some((store) => store.name === name)),
      secrets: [...secrets.values()],
    }
  }
  const secrets: SecretSource = {
    chain: async (of) => {
      const { secrets: opened, ...rest } = chainOf(of)
      return { ...rest, secrets: opened.map(({ value: _value, ...secret }) => secret) } satisfies SecretChain
    },
    openChain: async (of) => chainOf(of),
    hasDefaults: async () => false,
    putInline: async () => undefined,
    newPlaceholder: (shape) => `${shape}-${(made += 1)}`,
    seal: async (_orgId, text) => `sealed ${text}`,
    unseal: async (_orgId, sealed) => sealed.replace('sealed ', ''),
  }
  const egressStore: Partial<EgressStore> = {
    authority: async (id) => authorities.get(id),
    insertAuthority: async (authority) => void authorities.set(authority.id, authority),
    organisationPolicy: async (orgId) => policies.get(orgId),
    setOrganisationPolicy: async (orgId, policy) => void policies.set(orgId, policy),
    imagePolicy: async () => undefined,
  }
  const store = {
    sandbox: async (id: string) => sandboxes.get(id),
    sandboxesIn: async () => [...sandboxes.values()].filter(({ status }) => status === 'running'),
    updateSandbox: async (id: string, change: Partial<Sandbox>) => {
      const changed = { ...sandboxes.get(id)!, ...change }
      sandboxes.set(id, changed)
      return changed
    },
  }
  const driver = {
    egress: {
      unavailable: () => given.unavailable,
      refresh: async (id: string) => {
        if (id === given.failing) throw new Error('no process')
        refreshed.push(id)
      },
      makeAuthority: async () => ({ certificate: 'CERTIFICATE\n', key: 'KEY' }),
    },
  }
  const guest = () => ({
    readFile: async () => Promise.reject(new (class extends Error {})()),
    writeFile: async (path: string) => (files.set(path, ''), 0),
  })
  const egress = new Egress({
    ...{ store, egressStore, secrets, driver, guest, log: silentLog },
  } as unknown as EgressOptions)
  const add = (id: string, fields: Partial<Sandbox>) =>
    sandboxes.set(id, { id, orgId: 'org_1', status: 'hibernated', envs: {}, ...fields } as Sandbox)
  return { egress, given, sandboxes, authorities, refreshed, add }
}

const withStore: FakeStore = {
  name: 'prod',
  hosts: ['api.example'],
  secrets: { TOKEN: { value: 'real', hosts: ['api.example'] } },
}

test('egress: a creation that asks for nothing is left alone', async () => {
  const { egress } = setup({ unavailable: 'not installed' })
  assert.deepEqual(await egress.prepare('org_1', {}), { envs: {} })
})

test('egress: what the host cannot hold is refused before anything is made', async () => {
  const { egress } = setup({ unavailable: 'not installed', stores: [withStore] })
  await refuses(egress.prepare('org_1', { egress: { mode: 'none' } }), 'unavailable', /not installed/)
  await refuses(egress.prepare('org_1', { secretStore: 'prod' }), 'unavailable', /not installed/)
})

test('egress: a store that is named must exist, and an inherited one that is gone is left out', async () => {
  const { egress, given } = setup({ stores: [withStore] })
  await refuses(egress.prepare('org_1', { secretStore: 'other' }), 'invalid_request', /secretStore/)
  const first = await egress.prepare('org_1', { secretStore: 'prod' })
  given.stores = []
  const inherited = { egress: first.egress, isForeign: false, checkpointId: 'cp-1' }
  const fork = await egress.prepare('org_1', {}, { inherited })
  assert.deepEqual(fork.egress?.placeholders, {})
})

test('egress: commands get placeholders and never values; a variable of the client wins, and its secret is not used', async () => {
  const { egress, add } = setup({ stores: [withStore] })
  const { envs, egress: state } = await egress.prepare('org_1', { secretStore: 'prod' })
  assert.equal(envs['TOKEN'], 'sealed-1')
  assert.equal(JSON.stringify([envs, state]).includes('real'), false)
  const own = await egress.prepare('org_1', { secretStore: 'prod' }, { envs: { TOKEN: 'mine' } })
  assert.equal(own.envs['TOKEN'], undefined)
  add('sb-1', { egress: own.egress! })
  assert.deepEqual((await egress.egressOf('sb-1')).plan?.secrets, [])
})

test('egress: a fork has placeholders of its own, those of its processes resolve in it, and it shares the authority', async () => {
  const { egress, add } = setup({ stores: [withStore] })
  const source = await egress.prepare('org_1', { secretStore: 'prod' })
  const fork = await egress.prepare(
    'org_1',
    {},
    { inherited: { egress: source.egress, isForeign: false, checkpointId: 'cp-1' } },
  )
  assert.notEqual(fork.envs['TOKEN'], source.envs['TOKEN'])
  assert.equal(fork.egress?.authorityId, source.egress?.authorityId)
  add('sb-2', { egress: fork.egress! })
  const { plan } = await egress.egressOf('sb-2')
  assert.deepEqual(plan?.secrets[0]?.placeholders, [fork.envs['TOKEN'], source.envs['TOKEN']])
  add('sb-1', { egress: source.egress! })
  assert.deepEqual((await egress.egressOf('sb-1')).plan?.secrets[0]?.placeholders, [source.envs['TOKEN']])
})

test('egress: a checkpoint of another organisation brings neither stores nor its authority', async () => {
  const { egress } = setup({ stores: [withStore] })
  const source = await egress.prepare('org_1', { secretStore: 'prod' })
  const inherited = { egress: source.egress, isForeign: true, checkpointId: 'cp-1' }
  assert.deepEqual(await egress.prepare('org_2', {}, { inherited }), { envs: {} })
})

test('egress: a start for somebody else brings what restricts, and no secret', async () => {
  const { egress, add } = setup({ stores: [withStore] })
  const policy = { deny: ['paste.example'] }
  const source = await egress.prepare('org_1', { secretStore: 'prod', egress: policy, egressAllowlist: ['a.example'] })
  const inherited = { egress: source.egress, isForeign: false, isHandedOver: true, checkpointId: 'cp-1' }
  const started = await egress.prepare('org_1', {}, { inherited })
  const { stores, placeholders, inline, authorityId, hosts } = started.egress!
  assert.deepEqual([stores, placeholders, inline, authorityId], [[], {}, [], undefined])
  assert.deepEqual(hosts, ['a.example', 'api.example'])
  assert.equal(started.envs['TOKEN'], undefined)
  add('sb-2', { egress: started.egress! })
  const { state, plan } = await egress.egressOf('sb-2')
  assert.deepEqual([state, plan?.secrets], ['confined', []])
  assert.deepEqual(
    plan?.layers.map(({ source: of }) => of),
    ['store', 'creation'],
  )
})

test('egress: a value that is changed, and a secret that is added or removed, reach what runs', async () => {
  const store: FakeStore = structuredClone(withStore)
  const { egress, add, sandboxes, refreshed } = setup({ stores: [store] })
  const made = await egress.prepare('org_1', { secretStore: 'prod' })
  add('sb-1', { status: 'running', egress: made.egress!, envs: made.envs })
  add('sb-2', { status: 'running' })
  store.secrets = { TOKEN: { value: 'newer', hosts: ['api.example'] }, MORE: { value: 'x', hosts: ['api.example'] } }
  assert.deepEqual(await egress.refresh('org_1', { name: 'prod', isDefault: false }), { refreshed: 1, failures: [] })
  assert.deepEqual(refreshed, ['sb-1'])
  const { envs } = sandboxes.get('sb-1')!
  assert.equal(envs['TOKEN'], made.envs['TOKEN'], 'a placeholder stays')
  assert.match(envs['MORE'] ?? '', /^sealed-/)
  assert.deepEqual(
    (await egress.egressOf('sb-1')).plan?.secrets.map(({ value }) => value),
    ['newer', 'x'],
  )
  store.secrets = {}
  await egress.refresh('org_1', { name: 'prod', isDefault: false })
  assert.equal(sandboxes.get('sb-1')!.envs['TOKEN'], undefined)
  assert.deepEqual((await egress.egressOf('sb-1')).plan?.secrets, [])
})

test('egress: the policy of the organisation is a layer of every sandbox, also of those that ask for nothing', async () => {
  const { egress, add, refreshed } = setup()
  add('sb-1', { status: 'running' })
  assert.deepEqual(await egress.egressOf('sb-1'), { state: 'open' })
  const done = await egress.setOrganisationPolicy('org_1', { deny: ['paste.example'] })
  assert.deepEqual([done, refreshed], [{ refreshed: 1, failures: [] }, ['sb-1']])
  const { state, plan } = await egress.egressOf('sb-1')
  assert.deepEqual([state, plan?.layers.map(({ source }) => source)], ['confined', ['organisation']])
  await egress.setOrganisationPolicy('org_1', undefined)
  assert.deepEqual(await egress.egressOf('sb-1'), { state: 'open' })
})

test('egress: a failure of one sandbox is told, and the others are brought up to date', async () => {
  const { egress, add, refreshed } = setup({ failing: 'sb-1' })
  add('sb-1', { status: 'running' })
  add('sb-2', { status: 'running' })
  const { failures } = await egress.setOrganisationPolicy('org_1', { mode: 'none' })
  assert.deepEqual([failures, refreshed], [[{ sandboxId: 'sb-1', error: 'internal error' }], ['sb-2']])
})

test('egress: a change of the policy keeps the record of what a client has set', async () => {
  const { egress, add, sandboxes } = setup()
  add('sb-1', { envs: { OWN: 'x' } })
  await egress.setPolicy(sandboxes.get('sb-1')!, { allow: ['a.example'] })
  assert.deepEqual(sandboxes.get('sb-1')!.egress?.policy?.allow, [{ host: 'a.example' }])
  assert.deepEqual(sandboxes.get('sb-1')!.envs, { OWN: 'x' })
  await egress.setPolicy(sandboxes.get('sb-1')!, {})
  assert.deepEqual(await egress.egressOf('sb-1'), { state: 'open' })
})

test('egress: allowed hosts are those of the stores as they are now', async () => {
  const { egress, add, sandboxes } = setup({ stores: [withStore] })
  const { egress: state } = await egress.prepare('org_1', { secretStore: 'prod', egressAllowlist: ['more.example'] })
  add('sb-1', { egress: state! })
  assert.deepEqual(await egress.allowedHosts(sandboxes.get('sb-1')!), {
    secretStore: 'prod',
    egressAllowlist: ['more.example', 'api.example'],
    perSecretAllowedHosts: { TOKEN: ['api.example'] },
  })
})

test('egress: a denial of the gateway by name closes it, one that only records does not', async () => {
  const { egress, add, sandboxes } = setup()
  add('sb-1', {})
  const gateway = 'gateway.atoll.internal'
  assert.equal(await egress.gatewayRefusal('sb-1', gateway), undefined)
  await egress.setPolicy(sandboxes.get('sb-1')!, { deny: [gateway] })
  assert.equal(await egress.gatewayRefusal('sb-1', gateway), 'creation.deny[0]')
  await egress.setPolicy(sandboxes.get('sb-1')!, { deny: [gateway], logOnly: true })
  assert.equal(await egress.gatewayRefusal('sb-1', gateway), undefined)
})
