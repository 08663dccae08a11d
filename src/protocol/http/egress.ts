import { z } from 'zod'
import { milliTime } from './common.ts'
import { at, showExample } from './examples.ts'
import { allowedHosts as secretHosts, secretRules } from './secret-stores.ts'

const text = (description: string) => z.string().describe(description)
const mode = z.enum(['none', 'list', 'all'])
const ports = z
  .array(z.union([z.int().min(1).max(65_535), z.string().max(11)]))
  .describe('Ports, or ranges such as `8000-8010`; left out: any')
const methods = z.array(z.string().max(32)).describe('HTTP methods; left out: any. TLS to the host is then read')
const paths = z
  .array(z.string().max(1024))
  .describe('Paths; `*` is any run of characters; left out: any. TLS to the host is then read')

/** A destination. */
export const egressRule = z.union([
  z
    .string()
    .max(320)
    .describe(
      'A host name, `*.name` for all below it, `*`, an IPv4 address or block; with `:port` or `:from-to` if wanted',
    ),
  z.strictObject({
    host: z.string().max(260).optional().describe('A host name, `*.name` or `*`; this or `cidr`'),
    cidr: z.string().max(32).optional().describe('An IPv4 address or block'),
    ports: ports.optional(),
    methods: methods.optional(),
    paths: paths.optional(),
    inspect: z.boolean().optional().describe('TLS to the host is read, so that the name in each request counts'),
  }),
])

const rules = z.array(egressRule).max(1000)

export const egressPolicy = z.strictObject({
  mode: mode
    .optional()
    .describe(
      '`none`: nothing; `list`: what `allow` names; `all`: everything. Default `list` with `allow`, else `all`',
    ),
  allow: rules.optional().describe('What the sandbox may reach'),
  deny: rules.optional().describe('What it may not reach, whatever `allow` says'),
  logOnly: z.boolean().optional().describe('Refusals are recorded as `would_deny`, and pass'),
})
showExample(egressPolicy, { mode: 'list', allow: ['api.github.com', '*.npmjs.org:443'], deny: ['gist.github.com'] })

/** Secrets of one creation. */
const inlineSecrets = z.record(
  z.string(),
  z.strictObject({
    value: z.string().describe('The value; it is never shown again'),
    allowedHosts: secretHosts.optional(),
    ...secretRules,
  }),
)

/** In a create of a sandbox. */
export const egressFields = {
  secretStore: z.string().max(256).optional().describe('Name of a secret store, whose secrets the sandbox uses'),
  secrets: inlineSecrets.optional().describe('Secrets for this sandbox and its forks, by the name of their variable'),
  egress: egressPolicy.optional().describe('What the sandbox may reach; default everything public'),
  egressAllowlist: z
    .array(z.string().max(260))
    .max(1000)
    .optional()
    .describe('Hosts that it may reach, with those of its secret stores; left out or empty: no restriction'),
  secretAllowedHosts: z
    .record(z.string(), z.array(z.string().max(260)).max(100))
    .optional()
    .describe('Hosts to which a secret is sent, by its name, in place of those of its store'),
}

const shownRule = z.object({
  id: text('Where it stands, as refusals name it'),
  host: text('The name').optional(),
  cidr: text('The block').optional(),
  ports: z
    .array(z.tuple([z.int(), z.int()]))
    .optional()
    .describe('Ranges, ends included'),
  methods: methods.optional(),
  paths: paths.optional(),
  inspect: z.boolean().optional().describe('TLS to it is read'),
})

const shownPolicy = z.object({
  mode: mode.describe('`none`, `list` or `all`'),
  allow: z.array(shownRule.omit({ id: true })).describe('As they are compared'),
  deny: z.array(shownRule.omit({ id: true })).describe('As they are compared'),
  logOnly: z.boolean().describe('Refusals pass'),
})

export const egress = z
  .object({
    state: z
      .enum(['open', 'proxied', 'confined'])
      .describe('`open`: not held; `proxied`: TCP and names are taken; `confined`: all else is refused as well'),
    policy: shownPolicy.nullable().describe('Of its creation or of the last change; null: none'),
    layers: z
      .array(
        z.object({
          source: z.enum(['organisation', 'image', 'store', 'creation']).describe('Whose it is'),
          mode: mode.describe('`none`, `list` or `all`'),
          logOnly: z.boolean().describe('Refusals pass'),
          allow: z.array(shownRule).describe('What may be reached'),
          deny: z.array(shownRule).describe('What may not be reached'),
        }),
      )
      .describe('Each of them must let a connection pass'),
    stores: z.array(z.string()).describe('Names of its secret stores, in their order'),
    secrets: z
      .array(
        z.object({
          name: text('Name of the secret and of its variable'),
          hosts: z.array(z.string()).describe('Where its value is sent'),
          isUsed: z.boolean().describe('Whether it is sent anywhere'),
          why: text('Why not').optional(),
        }),
      )
      .describe('After layering; no value is ever shown'),
    builtIn: z.array(z.string()).describe('What is always reachable: the model gateway and the metadata service'),
    unavailable: text('Why this host cannot hold egress').optional(),
  })
  .meta({
    id: 'Egress',
    description: 'What a sandbox may reach',
    examples: [
      {
        state: 'confined',
        policy: { mode: 'list', allow: [{ host: 'api.github.com' }], deny: [], logOnly: false },
        layers: [
          {
            source: 'creation',
            mode: 'list',
            logOnly: false,
            allow: [{ id: 'creation.allow[0]', host: 'api.github.com' }],
            deny: [],
          },
        ],
        stores: [],
        secrets: [],
        builtIn: ['gateway.atoll.internal:4180', '169.254.169.254:80'],
      },
    ],
  })

export const organisationEgress = z.object({ policy: shownPolicy.nullable().describe('Null: none') }).meta({
  id: 'OrganisationEgress',
  description: 'What every sandbox of the organisation is held to besides its own policy',
  examples: [{ policy: { mode: 'all', allow: [], deny: [{ host: 'paste.example' }], logOnly: false } }],
})

export const imageEgress = organisationEgress.meta({
  id: 'ImageEgress',
  description: 'What sandboxes that start from an image are held to besides their own policy',
  examples: [{ policy: null }],
})

const refreshed = {
  refreshed: z.int().describe('Running sandboxes for which it holds now'),
  failures: z
    .array(z.object({ sandboxId: text('The sandbox'), error: text('Why') }))
    .describe('Running sandboxes for which it could not be put in force'),
}

export const organisationEgressSet = organisationEgress
  .extend(refreshed)
  .meta({ id: 'OrganisationEgressSet', examples: [{ policy: null, refreshed: 3, failures: [] }] })

export const putOrganisationEgress = z.strictObject({
  policy: egressPolicy.nullable().describe('Null takes it away'),
})
showExample(putOrganisationEgress, { policy: { deny: ['paste.example'] } })

const decision = z.enum(['allowed', 'denied', 'would_deny', 'failed'])

export const egressEntry = z
  .object({
    number: z.int().describe('Its place in the log of the sandbox'),
    ts: milliTime.describe('When it ended, or was refused'),
    decision: decision.describe('`would_deny`: a policy that only records would have refused it'),
    protocol: z.enum(['tls', 'http', 'https', 'tcp', 'dns', 'h2', 'ws']).describe('`tls`: passed on unread'),
    host: text('The name that was asked for').optional(),
    address: text('The address that was asked for, or dialled').optional(),
    port: z.int().describe('The port'),
    method: text('The method, where HTTP was read').optional(),
    path: text('The path as the sandbox sent it, without the query').optional(),
    status: z.int().optional().describe('The status of the answer, where HTTP was read'),
    rule: text('The rule that decided').optional(),
    reason: text('Why it was refused or failed').optional(),
    sentBytes: z.int().describe('Bytes from the sandbox'),
    receivedBytes: z.int().describe('Bytes to the sandbox'),
    secrets: z.array(z.string()).optional().describe('Names of the secrets that were sent'),
    durationMs: z.int().describe('How long it took'),
  })
  .meta({
    id: 'EgressEntry',
    description: 'A connection, request or name that a sandbox asked for',
    examples: [
      {
        number: 1,
        ts: at.millisecond,
        decision: 'denied',
        protocol: 'tls',
        host: 'paste.example',
        port: 443,
        rule: 'organisation.deny[0]',
        sentBytes: 517,
        receivedBytes: 7,
        durationMs: 1,
      },
    ],
  })

export const egressLogQuery = z.object({
  after: z
    .string()
    .regex(/^(newest|\d{1,15})$/)
    .optional()
    .describe('Only entries with a higher number; `newest`: the last ones, or those from now on with `follow`'),
  limit: z.coerce.number().int().min(1).max(1000).optional().describe('Default 100'),
  decision: decision.optional().describe('Only those'),
  follow: z.enum(['true', 'false']).optional().describe('`true`: as server-sent events, until the client leaves'),
})

export const egressLog = z
  .object({ data: z.array(egressEntry).describe('In the order of their numbers') })
  .meta({ id: 'EgressLog', examples: [{ data: [] }] })

export const allowedHosts = z
  .object({
    sandboxID: text('Id of the sandbox'),
    secretStore: text('The store that was named last').optional(),
    baseSecretStore: text('The one that it inherited through a checkpoint').optional(),
    egressAllowlist: z.array(z.string()).describe('Hosts of its stores and of its creation; empty: no restriction'),
    perSecretAllowedHosts: z
      .record(z.string(), z.array(z.string()))
      .describe('Hosts to which a secret is sent, by its name; those without hosts are left out'),
  })
  .meta({ id: 'AllowedHosts', examples: [{ sandboxID: 'sb-abc123', egressAllowlist: [], perSecretAllowedHosts: {} }] })
