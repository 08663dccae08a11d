import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { test } from 'node:test'
import { defaultLogLimits } from '../events/index.ts'
import { defaultAuditLimits } from '../organisation/audit/index.ts'
import { defaultHttpLimits } from '../http/server/config.ts'
import { defaultImageLimits } from '../image/index.ts'
import { defaultSandboxLimits } from '../sandbox/index.ts'
import { defaultSecretLimits } from '../secret/index.ts'
import { defaultSessionLimits } from '../session/index.ts'
import { ConfigError, environment, readConfig } from './config.ts'
import { defaultDatabaseLimits } from './cluster.ts'
import { limitBounds } from './limits.ts'

test('configuration: without any variable the demo model serves on loopback', () => {
  const config = readConfig({})
  assert.deepEqual(config.listen, { host: '127.0.0.1', port: 4100 })
  assert.equal(config.model, 'demo')
  assert.equal(config.previewUrl.href, 'http://preview.localhost:4100/')
})

test('configuration: an empty variable counts as unset', () => {
  assert.equal(readConfig({ ANTHROPIC_API_KEY: '', ATOLL_LISTEN: '' }).model, 'demo')
})

test('configuration: a limit has a default, a given value, or none', () => {
  const dayMs = 86_400_000
  const cases = [
    ['ATOLL_SESSION_RETENTION_DAYS', 'sessionsKeptMs', 90 * dayMs, 30 * dayMs],
    ['ATOLL_QUARANTINE_DAYS', 'quarantineKeptMs', 7 * dayMs, 30 * dayMs],
    ['ATOLL_REQUESTS_PER_SECOND', 'requestsPerSecond', 100, 30],
  ] as const
  for (const [variable, field, byDefault, ofThirty] of cases) {
    const limit = (value?: string) => readConfig({ [variable]: value })[field]
    assert.deepEqual([limit(), limit('30'), limit('0')], [byDefault, ofThirty, undefined], variable)
  }
  assert.throws(() => readConfig({ ATOLL_RUNNING_SANDBOXES_MAX: '0' }), /ATOLL_RUNNING_SANDBOXES_MAX/)
  const many = (value?: string) => readConfig({ ATOLL_ALLOW_QUARANTINE: value }).mayQuarantineMany
  assert.deepEqual([many(), many('0'), many('1')], [false, false, true])
})

test('configuration: the size of the warm pool is a number within its bounds, or follows from the machine', () => {
  const size = (value?: string) => readConfig({ ATOLL_WARM_POOL: value }).warmSandboxesMax
  assert.deepEqual([size('0'), size('64'), size('1000')], [0, 64, 1000])
  assert.ok(size() <= 64)
  for (const wrong of ['1001', '100000', '99999999999', '-1', 'abc', '1.5', '1e2', '0x10', ' ']) {
    assert.throws(
      () => size(wrong),
      /^ConfigError: .*\n {2}ATOLL_WARM_POOL must be a whole number from 0 to 1000$/,
      wrong,
    )
  }
})

test('configuration: defaults of sandboxes are checked as the fields of a create, within the limits', () => {
  const read = (text?: string, more: object = {}) =>
    readConfig({ ATOLL_SANDBOX_DEFAULTS: text, ...more }).sandboxDefaults
  assert.deepEqual([read(), read('{}')], [{}, {}])
  const all = '{"timeout":0,"onIdle":"stop","maxAgeSeconds":604800}'
  assert.deepEqual(read(all), { timeoutSeconds: 0, onIdle: 'stop', maxAgeSeconds: 604_800 })
  const cases: [text: string, fault: RegExp][] = [
    ['{', /ATOLL_SANDBOX_DEFAULTS must be JSON/],
    ['{"timeout":601}', /ATOLL_SANDBOX_DEFAULTS timeout: must be a whole number from 0 to 600/],
    ['{"onIdle":"sleep"}', /ATOLL_SANDBOX_DEFAULTS onIdle: /],
    ['{"maxAgeSeconds":31536001}', /ATOLL_SANDBOX_DEFAULTS maxAgeSeconds: /],
    ['{"memoryMB":1}', /ATOLL_SANDBOX_DEFAULTS .*memoryMB/],
  ]
  const limits = { ATOLL_LIMITS: '{"sandbox":{"timeoutSecondsMax":600}}' }
  for (const [text, fault] of cases) assert.throws(() => read(text, limits), fault, text)
})

test('configuration: a base URL without a key counts as configured', () => {
  assert.equal(readConfig({ OPENAI_BASE_URL: 'http://127.0.0.1:1/v1' }).model, 'openai/gpt-5')
})

test('configuration: all faults are reported together, each with its variable', () => {
  for (const previewUrl of ['http://example.com', 'preview.example.com']) {
    const wrong = { ATOLL_LISTEN: 'nowhere', ATOLL_API_KEY: 'short', ATOLL_PREVIEW_URL: previewUrl }
    assert.throws(
      () => readConfig(wrong),
      (error: unknown) =>
        error instanceof ConfigError && Object.keys(wrong).every((variable) => error.message.includes(variable)),
    )
  }
})

test('configuration: faults of every kind are reported together', () => {
  const wrong = {
    ATOLL_API_KEY: 'short',
    ATOLL_LISTEN: '127.0.0.1:70000',
    ATOLL_SUBNET: '999.1.2.3/99',
    ATOLL_MODEL: 'openai/gpt-5',
    ATOLL_MODELS: 'bad',
    ATOLL_PRICES: 'x',
    ATOLL_LIMITS: '{"no":1}',
    ATOLL_REGISTRIES: '{"r.io":{"username":"a"}}',
    ATOLL_QUARANTINE_DAYS: '-1',
    ATOLL_ALLOW_QUARANTINE: 'yes',
    // The URL is refused but given, so no missing key is reported.
    ANTHROPIC_BASE_URL: 'nowhere',
  }
  assert.throws(
    () => readConfig({ ...wrong, ATOLL_MODELS: 'bad,anthropic/claude-haiku-4-5' }),
    (error: unknown) => {
      assert.ok(error instanceof ConfigError)
      const told = error.message.split('\n').slice(1)
      assert.deepEqual(new Set(told.map((line) => line.trim().split(' ')[0])), new Set(Object.keys(wrong)))
      return true
    },
  )
})

test('configuration: registries have a host, and credentials only together', () => {
  const given = {
    'R.example.com:5000': { username: 'a', password: 'b' },
    localhost: { insecure: true },
    'docker.io': {},
  }
  assert.deepEqual(readConfig({ ATOLL_REGISTRIES: JSON.stringify(given) }).registries, [
    { host: 'r.example.com:5000', username: 'a', password: 'b' },
    { host: 'localhost', insecure: true },
    { host: 'docker.io' },
  ])
  assert.ok(readConfig({}).registries.some(({ host }) => host === 'docker.io'))
  for (const text of ['none', '{}']) assert.deepEqual(readConfig({ ATOLL_REGISTRIES: text }).registries, [])
  const wrong: [string, RegExp][] = [
    ['x', /ATOLL_REGISTRIES must be JSON/],
    ['{"https://r.io":{}}', /ATOLL_REGISTRIES https:\/\/r\.io: must be a host name/],
    ['{"r.io/team":{}}', /must be a host name/],
    ['{"r.io":{"password":"secret"}}', /ATOLL_REGISTRIES r\.io: needs both/],
    ['{"r.io":{"username":"a:b","password":"secret"}}', /username: must not be empty or have a colon/],
    ['{"r.io":{"token":"secret"}}', /ATOLL_REGISTRIES r\.io/],
  ]
  for (const [text, rule] of wrong) {
    assert.throws(
      () => readConfig({ ATOLL_REGISTRIES: text }),
      (error: Error) => rule.test(error.message) && !error.message.includes('secret'),
      text,
    )
  }
})

test('configuration: the subnet must be valid for the runtime', () => {
  for (const wrong of ['10.0.0.0', '10.300.0.0/16', '10.0.0.0/8', '10.0.0.0/30', '10.0.0.1/16']) {
    assert.throws(() => readConfig({ ATOLL_SUBNET: wrong }), /ATOLL_SUBNET subnet /, wrong)
  }
  assert.equal(readConfig({ ATOLL_SUBNET: '10.243.0.0/20' }).subnet, '10.243.0.0/20')
})

test('configuration: docs/operate/operations.md lists every variable, and README no other', async () => {
  const rows = async (file: string) => {
    const text = await readFile(new URL(`../../${file}`, import.meta.url), 'utf8')
    const section = text.split('\n## ').find((part) => part.startsWith('Configuration\n')) ?? ''
    const table = section.split('\n').filter((line) => line.startsWith('| `'))
    return table.flatMap((line) => [...(line.split('|')[1] ?? '').matchAll(/`(\w+)`/g)].map(([, name]) => name))
  }
  const variables = Object.keys(environment.shape)
  assert.deepEqual(new Set(await rows('docs/operate/operations.md')), new Set(variables))
  const inReadme = await rows('README.md')
  assert.ok(inReadme.length > 10)
  for (const name of inReadme) assert.ok(variables.includes(String(name)), name)
})

test('configuration: the hosts of the API are the public one, the names of the machine, and the listed ones', () => {
  const env = { ATOLL_PUBLIC_URL: 'https://api.example.com:8443', ATOLL_API_HOSTS: 'LB.example.net, api2.example.com' }
  const { apiHosts } = readConfig(env)
  for (const host of ['api.example.com', 'lb.example.net', 'api2.example.com']) assert.ok(apiHosts.includes(host), host)
  assert.ok(apiHosts.includes(hostname().toLowerCase()))
  assert.throws(() => readConfig({ ATOLL_API_HOSTS: 'a b' }), /ATOLL_API_HOSTS/)
})

test('configuration: publicUrl is set only by the operator, ownUrl always', () => {
  const unset = readConfig({ ATOLL_LISTEN: '0.0.0.0:4711' })
  assert.deepEqual([unset.publicUrl, unset.ownUrl], [undefined, 'http://localhost:4711'])
  const set = readConfig({ ATOLL_PUBLIC_URL: 'https://api.example.com' })
  assert.deepEqual([set.publicUrl, set.ownUrl], ['https://api.example.com', 'https://api.example.com'])
})

test('configuration: trusted proxies are all, none, or addresses', () => {
  assert.equal(readConfig({}).trustProxy, false)
  assert.equal(readConfig({ ATOLL_TRUST_PROXY: 'true' }).trustProxy, true)
  const { trustProxy } = readConfig({ ATOLL_TRUST_PROXY: 'loopback, 10.1.2.3,2001:db8::/32' })
  assert.deepEqual(trustProxy, ['127.0.0.0/8', '::1', '10.1.2.3', '2001:db8::/32'])
  for (const wrong of ['yes', '10.0.0.0/33', '10.0.0.0/', 'caddy', '10.0.0.1,', '10.0.0.0/8/8', '::1/129']) {
    assert.throws(() => readConfig({ ATOLL_TRUST_PROXY: wrong }), /ATOLL_TRUST_PROXY/, wrong)
  }
})

test('configuration: name servers are those of the machine, or up to three addresses', () => {
  const servers = (value?: string) => readConfig({ ATOLL_DNS_SERVERS: value }).dnsServers
  assert.deepEqual([servers(), servers(''), servers(' ')], [[], [], []])
  assert.deepEqual(servers('127.0.0.1, 10.0.0.1:5353,[2001:db8::1]:53'), [
    '127.0.0.1',
    '10.0.0.1:5353',
    '[2001:db8::1]:53',
  ])
  assert.deepEqual(servers('2001:db8::1'), ['2001:db8::1'])
  const wrong = 'dns.example.com 1.2.3 1.2.3.4:0 1.2.3.4:65536 1.2.3.4, [1.2.3.4] 2001:db8::1:x 1.1.1.1/8'.split(' ')
  for (const value of [...wrong, '[::1', '1.1.1.1,2.2.2.2,3.3.3.3,4.4.4.4']) {
    assert.throws(() => readConfig({ ATOLL_DNS_SERVERS: value }), /ATOLL_DNS_SERVERS must be/, value)
  }
})

test('configuration: the gateway allows what is listed, and names of nothing are told', () => {
  const allowed = (value?: string) => readConfig({ ATOLL_GATEWAY_ALLOW: value }).gatewayAllowList
  const field = 'openai-responses:previous_response_id'
  const { shapes, betas } = allowed(` ${field},, anthropic-beta:new-2030-01-01 `)
  assert.deepEqual([...betas], ['new-2030-01-01'])
  assert.deepEqual(shapes['openai-responses'].object?.fields.get('previous_response_id'), { isFree: true })
  assert.notDeepEqual(allowed().shapes, shapes)
  assert.throws(() => readConfig({ ATOLL_GATEWAY_ALLOW: `${field},openai:x` }), /ATOLL_GATEWAY_ALLOW openai:x must be/)
  const nowhere = 'anthropic-messages:message.x'
  assert.throws(
    () => readConfig({ ATOLL_GATEWAY_ALLOW: nowhere }),
    /ATOLL_GATEWAY_ALLOW anthropic-messages:message\.x names/,
  )
})

test('models: only the default model is offered unless more are listed', () => {
  assert.deepEqual(readConfig({}).models, ['demo'])
  assert.deepEqual(readConfig({ ANTHROPIC_API_KEY: 'k' }).models, ['anthropic/claude-sonnet-4-5'])
  const env = { ANTHROPIC_API_KEY: 'k', ATOLL_MODELS: ' anthropic/claude-haiku-4-5 ,demo,demo' }
  assert.deepEqual(readConfig(env).models, ['anthropic/claude-sonnet-4-5', 'anthropic/claude-haiku-4-5', 'demo'])
})

test('models: an invalid name, or a provider without a key, is a fault', () => {
  assert.throws(() => readConfig({ ATOLL_MODELS: 'gpt-5' }), /ATOLL_MODELS gpt-5/)
  assert.throws(() => readConfig({ ATOLL_MODELS: 'openai/gpt-5' }), /ATOLL_MODELS openai\/gpt-5 needs OPENAI_API_KEY/)
})

test('prices: they are read by model, and faults are reported with their path', () => {
  const price = { inputPerMillion: 3, cacheReadPerMillion: 0.2, cacheWritePerMillion: 4, outputPerMillion: 15 }
  const { prices } = readConfig({ ATOLL_PRICES: JSON.stringify({ 'anthropic/claude-sonnet-4-5': price }) })
  assert.deepEqual(prices.get('anthropic/claude-sonnet-4-5'), price)
  const free = { inputPerMillion: 0, cacheReadPerMillion: 0, cacheWritePerMillion: 0, outputPerMillion: 0 }
  assert.deepEqual([...readConfig({}).prices], [['demo', free]], 'the demo model costs nothing')
  assert.deepEqual(readConfig({ ATOLL_PRICES: JSON.stringify({ demo: price }) }).prices.get('demo'), price)
  for (const [text, pattern] of [
    ['{', /ATOLL_PRICES must be JSON/],
    ['[]', /ATOLL_PRICES /],
    ['{"gpt-5":{"inputPerMillion":1,"outputPerMillion":1}}', /ATOLL_PRICES gpt-5: must be "demo" or provider\/model/],
    ['{"demo":{"inputPerMillion":-1,"outputPerMillion":1}}', /ATOLL_PRICES demo\.inputPerMillion/],
    ['{"demo":{"inputPerMillion":1}}', /ATOLL_PRICES demo\.outputPerMillion/],
    ['{"demo":{"inputPerMillion":"1","outputPerMillion":-1}}', /demo\.inputPerMillion: .*\n.*demo\.outputPerMillion: /],
    [
      '{"openai/gpt-5":{"inputPerMillion":1,"outputPerMillion":1,"cacheReadPerMillion":"0"}}',
      /ATOLL_PRICES openai\/gpt-5\.cacheReadPerMillion/,
    ],
    [
      '{"demo":{"inputPerMillion":1,"outputPerMillion":1,"cacheWritePerMillion":-1}}',
      /ATOLL_PRICES demo\.cacheWritePerMillion/,
    ],
    ['{"demo":{"inputPerMillion":1,"outputPerMillion":1,"cached":1}}', /ATOLL_PRICES demo.*cached/],
    ['{"demo":{"inputPerMillion":1,"outputPerMillion":1e9}}', /ATOLL_PRICES demo\.outputPerMillion/],
  ] as const) {
    assert.throws(() => readConfig({ ATOLL_PRICES: text }), pattern, text)
  }
})

test("rates of a cache that nobody gave are Anthropic's for its models, and never too low for others", () => {
  const given = { inputPerMillion: 4, outputPerMillion: 8 }
  const { prices } = readConfig({ ATOLL_PRICES: JSON.stringify({ 'anthropic/claude-x': given, 'openai/x': given }) })
  assert.deepEqual(prices.get('anthropic/claude-x'), { ...given, cacheReadPerMillion: 0.4, cacheWritePerMillion: 5 })
  assert.deepEqual(prices.get('openai/x'), { ...given, cacheReadPerMillion: 4, cacheWritePerMillion: 5 })
})

test('configuration: keys of secrets are read from hex and base64, and a fault shows none', () => {
  const [hex, base64] = ['ab'.repeat(32), Buffer.alloc(32, 7).toString('base64')]
  const { secretsKeys } = readConfig({ ATOLL_SECRETS_KEY: `${hex}, ${base64}` })
  assert.deepEqual(
    secretsKeys.map((key) => key.hex),
    [hex, '07'.repeat(32)],
  )
  assert.deepEqual(readConfig({ ATOLL_SECRETS_KEY: '' }).secretsKeys, [])
  for (const wrong of ['too-short', `${hex},`, hex.slice(2)])
    assert.throws(
      () => readConfig({ ATOLL_SECRETS_KEY: wrong }),
      (error: Error) => {
        assert.match(error.message, /ATOLL_SECRETS_KEY must be keys of 32 bytes/)
        return !error.message.includes(wrong)
      },
    )
})

const defaults: Record<string, object> = {
  sandbox: defaultSandboxLimits,
  image: defaultImageLimits,
  secret: defaultSecretLimits,
  session: defaultSessionLimits,
  events: defaultLogLimits,
  audit: defaultAuditLimits,
  http: defaultHttpLimits,
  database: defaultDatabaseLimits,
}

test('limits: they are read by group, and the others keep their defaults', () => {
  const given = { sandbox: { memoryMbMax: 8192 }, http: { uploadBytesMax: 1_000_000 } }
  assert.deepEqual(readConfig({ ATOLL_LIMITS: JSON.stringify(given) }).limits, {
    image: {},
    secret: {},
    session: {},
    events: {},
    audit: {},
    database: {},
    organisation: {},
    ...given,
  })
  assert.deepEqual(readConfig({}).limits, {
    sandbox: {},
    image: {},
    secret: {},
    session: {},
    events: {},
    http: {},
    audit: {},
    database: {},
    organisation: {},
  })
})

test('limits: all faults are reported with their path', () => {
  for (const [text, ...patterns] of [
    ['{', /ATOLL_LIMITS must be JSON/],
    ['[]', /ATOLL_LIMITS /],
    ['{"memoryMbMax":8192}', /ATOLL_LIMITS .*"memoryMbMax"/],
    ['{"sandbox":{"memoryMax":8192}}', /ATOLL_LIMITS sandbox: .*"memoryMax"/],
    ['{"sandbox":{"runningSandboxesMax":1}}', /ATOLL_LIMITS sandbox: .*"runningSandboxesMax"/],
    ['{"sandbox":{"memoryMbMax":0.5}}', /ATOLL_LIMITS sandbox\.memoryMbMax: must be a whole number from 1024 to /],
    [
      '{"http":{"bodyBytesMax":1e12},"session":{"queuedMessagesMax":"5"}}',
      /ATOLL_LIMITS http\.bodyBytesMax: must be/,
      /ATOLL_LIMITS session\.queuedMessagesMax: must be/,
    ],
  ] as const) {
    for (const pattern of patterns) assert.throws(() => readConfig({ ATOLL_LIMITS: text }), pattern, text)
  }
})

test('limits: each default is within its bounds', () => {
  for (const [group, bounds] of Object.entries(limitBounds)) {
    for (const [name, [lowest, highest]] of Object.entries<readonly [number, number]>(bounds)) {
      const value = Number(Object.entries(defaults[group] ?? {}).find(([key]) => key === name)?.[1])
      assert.ok(value >= lowest && value <= highest, `${group}.${name}: ${value}`)
    }
  }
})

test('limits: docs/operate/operations.md has a row for each, with its default and its bounds', async () => {
  const text = await readFile(new URL('../../docs/operate/operations.md', import.meta.url), 'utf8')
  for (const [group, bounds] of Object.entries(limitBounds)) {
    for (const [name, [lowest, highest]] of Object.entries<readonly [number, number]>(bounds)) {
      const row = text.split('\n').find((line) => line.startsWith(`| \`${group}.${name}\` |`))
      assert.ok(row, `${group}.${name} has no row`)
      const [value = '', range] = row
        .split('|')
        .slice(2)
        .map((cell) => cell.trim())
      assert.equal(range, `${lowest} to ${highest}`, row)
      const expected = Object.entries(defaults[group] ?? {}).find(([key]) => key === name)?.[1] as number
      // Where the default depends on the machine or on another variable, the row says how.
      if (/^\d/.test(value)) assert.equal(Number.parseInt(value, 10), expected, row)
      else
        assert.ok(
          [
            'sandbox.startsAtOnce',
            'sandbox.memoryReserveMb',
            'session.agentStartsAtOnce',
            'http.requestBurst',
          ].includes(`${group}.${name}`),
          row,
        )
    }
  }
})
