import { z } from 'zod'
import { type EgressInfo, Sandbox } from '../../../sdk/src/index.ts'
import { reads, sets, tool, type ToolContext } from '../tool.ts'
import { sandboxId } from './common.ts'

const rule = z.union([
  z.string().min(1).describe('api.example.com, *.example.com, *, 198.51.100.0/24; :443 or :8000-8010 behind it'),
  z.strictObject({
    host: z.string().optional(),
    cidr: z.string().optional().describe('In place of host'),
    ports: z.array(z.union([z.int(), z.string()])).optional(),
    methods: z.array(z.string()).optional().describe('GET …'),
    paths: z.array(z.string()).optional().describe('/v1/*'),
  }),
])
const rules = z.array(rule).min(1).max(100)
const mode = z.enum(['none', 'list', 'all'])
const decision = z.enum(['allowed', 'denied', 'would_deny', 'failed'])
const logMax = 100

const egressOutput = z.object({
  sandbox_id: z.string(),
  state: z.string().describe('open: not held'),
  layers: z.array(
    z.object({
      source: z.string(),
      mode: z.string(),
      log_only: z.boolean(),
      allow: z.array(z.looseObject({ id: z.string() })),
      deny: z.array(z.looseObject({ id: z.string() })),
    }),
  ),
  secrets: z.array(z.object({ name: z.string(), hosts: z.array(z.string()), is_used: z.boolean() })),
})

export const egressTools = [
  tool({
    name: 'egress_get',
    title: 'Show what a sandbox may reach',
    description: 'Return the layers of rules of a sandbox, all of which must let a connection pass, and its secrets.',
    input: z.object({ sandbox_id: sandboxId }),
    output: egressOutput,
    hints: reads,
    async run({ sandbox_id }, context) {
      const { egress } = await connect(sandbox_id, context)
      return outputOf(sandbox_id, await egress.get({ signal: context.signal }))
    },
  }),
  tool({
    name: 'egress_set',
    title: 'Set what a sandbox may reach',
    description: 'Replace the rules of a sandbox, at once. Other layers (organisation, image, stores) stay.',
    input: z.object({
      sandbox_id: sandboxId,
      mode: mode.describe('none: nothing; list: what allow names; all: everything'),
      allow: rules.optional(),
      deny: rules.optional().describe('Wins over allow'),
      log_only: z.boolean().optional().describe('Record refusals as would_deny, and let pass'),
    }),
    output: egressOutput,
    hints: { ...sets, destructiveHint: true },
    async run({ sandbox_id, log_only: logOnly, ...policy }, context) {
      const { egress } = await connect(sandbox_id, context)
      return outputOf(sandbox_id, await egress.set({ ...policy, logOnly }, { signal: context.signal }))
    },
  }),
  tool({
    name: 'egress_allow',
    title: 'Let a sandbox reach more',
    description: 'Add rules to the list of what a sandbox may reach, at once.',
    input: z.object({ sandbox_id: sandboxId, rules }),
    output: egressOutput,
    hints: sets,
    async run({ sandbox_id, rules: given }, context) {
      const { egress } = await connect(sandbox_id, context)
      return outputOf(sandbox_id, await egress.allow(...given))
    },
  }),
  tool({
    name: 'egress_deny',
    title: 'Let a sandbox reach less',
    description: 'Add rules to what a sandbox may not reach, at once. They win over what is allowed.',
    input: z.object({ sandbox_id: sandboxId, rules }),
    output: egressOutput,
    hints: sets,
    async run({ sandbox_id, rules: given }, context) {
      const { egress } = await connect(sandbox_id, context)
      return outputOf(sandbox_id, await egress.deny(...given))
    },
  }),
  tool({
    name: 'egress_log',
    title: 'Read what a sandbox has asked for outside',
    description: `Return entries of the egress log of a sandbox, at most ${logMax}: the newest, or those after a number.`,
    input: z.object({
      sandbox_id: sandboxId,
      after: z.int().min(0).optional().describe('Number of an entry; 0: from the oldest on'),
      decision: decision.optional().describe('Only these'),
    }),
    output: z.object({ sandbox_id: z.string(), entries: z.array(z.looseObject({ number: z.int() })) }),
    hints: reads,
    async run({ sandbox_id, after, decision: only }, context) {
      const { egress } = await connect(sandbox_id, context)
      const entries = await egress.log({
        after: after ?? 'newest',
        limit: logMax,
        decision: only,
        signal: context.signal,
      })
      return {
        sandbox_id,
        entries: entries.map(({ sentBytes, receivedBytes, durationMs, ...rest }) => ({
          ...rest,
          sent_bytes: sentBytes,
          received_bytes: receivedBytes,
          duration_ms: durationMs,
        })),
      }
    },
  }),
]

async function connect(id: string, { client, signal }: ToolContext): Promise<Sandbox> {
  return await Sandbox.connect(id, { client, signal })
}

function outputOf(sandbox_id: string, { state, layers, secrets }: EgressInfo): z.input<typeof egressOutput> {
  return {
    sandbox_id,
    state,
    layers: layers.map(({ logOnly: log_only, ...layer }) => ({ ...layer, log_only })),
    secrets: secrets.map(({ name, hosts, isUsed: is_used }) => ({ name, hosts, is_used })),
  }
}
