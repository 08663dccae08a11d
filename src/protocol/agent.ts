import { z } from 'zod'
import { TimeSlice } from '../lib/async/time-slice.ts'
import { firstFault } from '../lib/first-fault.ts'
import { type JsonBounds, JsonBoundError, parseJson } from '../lib/json-values.ts'
import { agentStreamEvents, assistantDraft, messageId, shortText } from './stream-events.ts'

/**
 * The JSON lines between the server and the agent process of a session: commands on its standard input, events on its
 * standard output, one UTF-8 object per line. `docs/internals/agent.md` describes the life cycle and what repeats mean.
 *
 * Order. The server sends `configure` once per process, then one `message` at a time: the next one after the
 * `turn_complete` of the one before. Per message the agent answers `turn_started`, any number of `assistant_draft`, `assistant`,
 * `tool_use_summary`, `artifact` and `error`, one `result`, one `turn_complete`, whatever fails.
 *
 * Fields of commands are camelCase; fields of events have the names that clients see, because events are passed on.
 */

/** Longest command, without its newline. Both sides drop longer lines. */
export const agentLineBytesMax = 4 * 1024 * 1024

/** Deepest nesting that is accepted of the agent: JSON and databases recurse. */
export const agentLineDepthMax = 64

/** Most values in one line of the agent: a line of nothing but `{}` would take sixteen times its length in memory. */
export const agentLineValuesMax = 5000

/** Longest event of the agent. The JSON of an event is made again for each destination. */
export const agentEventBytesMax = 1024 * 1024

const lineBounds: JsonBounds = { valuesMax: agentLineValuesMax, depthMax: agentLineDepthMax, fieldsMax: 1000 }
/** A line of this length is parsed and checked within some milliseconds, whatever it holds. */
const shortLineBytes = 8 * 1024
/** Characters of a text that are made storable at once. */
const partChars = 256 * 1024

/** Environment of the agent process. The token belongs to the session; no model key enters a sandbox. */
export const agentEnvironment = {
  /** Such as `http://gateway.atoll.internal:4180`, without a path. */
  gatewayUrl: 'ATOLL_GATEWAY_URL',
  gatewayToken: 'ATOLL_GATEWAY_TOKEN',
} as const

export const toolNames = ['bash', 'read', 'write', 'edit', 'glob', 'grep', 'ls'] as const

/** Characters of a draft of an answer that are told before the answer is whole. */
export const draftCharactersMax = 64 * 1024
/** Characters of one piece of a draft. */
export const draftPieceCharactersMax = 16 * 1024

/** Wires of the gateway. */
export const modelApis = ['anthropic-messages', 'openai-completions', 'openai-responses'] as const
export type ModelApi = (typeof modelApis)[number]

const absolutePath = z.string().min(1).max(4096).startsWith('/')
const modelName = z.string().min(1).max(200)

const rate = z.number().min(0)
const price = z.object({
  inputPerMillion: rate,
  cacheReadPerMillion: rate,
  cacheWritePerMillion: rate,
  outputPerMillion: rate,
})

const configureCommandSchema = z.object({
  type: z.literal('configure'),
  sessionId: z.string().min(1).max(200),
  /** `pi`, `claude` or `acp:<command>`. */
  harness: z.string().min(1).max(1000),
  model: z.object({
    /** `anthropic`, `openai` or `demo`. */
    provider: modelName,
    /** Name on the wire: `claude-sonnet-4-5`, `gpt-5`, `demo`. */
    id: modelName,
    /** Default: `openai-completions` for provider `openai`, else `anthropic-messages`. */
    api: z.enum(modelApis).optional(),
  }),
  /** Appended to the prompt of the harness. */
  systemPrompt: z
    .string()
    .max(1024 * 1024)
    .optional(),
  /** Names of `toolNames`; absent means all. Unknown names are ignored. */
  allowedTools: z.array(z.string().max(200)).max(100).optional(),
  /** Working directory; created when it is missing. */
  cwd: absolutePath.default('/workspace/app'),
  /** Calls of the model in one turn. */
  maxTurns: z.int().min(1).max(10_000).optional(),
  /** Price of the model, in US dollars. Without it the harness reports the cost, if it knows it. */
  price: price.optional(),
  /** Holds the conversation and the journal of turns. */
  stateDir: absolutePath.default('/workspace/agent/.atoll'),
  /** Searched for `SKILL.md` files, at any depth. */
  skillsDir: absolutePath.default('/workspace/agent'),
  /** `SKILL.md` files outside of `skillsDir`. */
  skillFiles: z.array(absolutePath).max(200).optional(),
})

const messageCommandSchema = z.object({
  type: z.literal('message'),
  messageId,
  content: z.string().max(1024 * 1024),
})

const agentCommandSchema = z.discriminatedUnion('type', [
  configureCommandSchema,
  messageCommandSchema,
  /** Ends the running turn with `result` subtype `interrupted`. Without a running turn nothing happens. */
  z.object({ type: z.literal('interrupt'), messageId: messageId.optional() }),
  /** Interrupts the running turn and exits with status 0. So does the end of standard input. */
  z.object({ type: z.literal('shutdown') }),
])

const agentEventSchema = z.discriminatedUnion('type', [
  ...agentStreamEvents,
  /** What the model has written of its answer since the last piece. Kept nowhere: the whole answer follows as `assistant`. */
  assistantDraft,
  /** For the server alone: the agent has the message on disk. */
  z.object({ type: z.literal('turn_started'), message_id: messageId }),
  /** For the server alone: a created or changed file. Those of tools are reported at once, those of commands at the end of the turn. */
  z.object({ type: z.literal('artifact'), path: z.string().min(1).max(4096), summary: shortText }),
])

export type ConfigureCommand = z.output<typeof configureCommandSchema>
export type MessageCommand = z.output<typeof messageCommandSchema>
/** Fields with defaults may be left out. */
export type AgentCommandInput = z.input<typeof agentCommandSchema>
export type AgentCommand = z.output<typeof agentCommandSchema>
export type AgentEvent = z.output<typeof agentEventSchema>
export type AgentEventOf<Type extends AgentEvent['type']> = Extract<AgentEvent, { type: Type }>
export type ResultSubtype = AgentEventOf<'result'>['subtype']

/** One line, with its newline. */
export function encodeAgentLine(line: AgentCommandInput | AgentEvent): string {
  return `${JSON.stringify(line)}\n`
}

export type ParsedLine<T> = { ok: true; value: T } | { ok: false; reason: string }

/** Checks one line that the agent wrote. Never throws: the sandbox is hostile. Yields to the event loop while it reads a long one. */
export async function readAgentEvent(line: Buffer): Promise<ParsedLine<AgentEvent>> {
  if (line.length <= shortLineBytes) return parseAgentEvent(line.toString('utf8'))
  let value: unknown
  try {
    value = await parseJson(line, lineBounds)
  } catch (error) {
    return { ok: false, reason: error instanceof JsonBoundError ? boundFaults[error.bound] : 'not JSON' }
  }
  return checked(await storableInSlices(value, new TimeSlice()), agentEventSchema)
}

const boundFaults: Record<keyof JsonBounds, string> = {
  valuesMax: `more than ${agentLineValuesMax} values`,
  depthMax: `nested deeper than ${agentLineDepthMax}`,
  fieldsMax: `an object with more than ${lineBounds.fieldsMax} fields`,
}

/** Like `readAgentEvent`, at once, for a short line. */
export function parseAgentEvent(line: string): ParsedLine<AgentEvent> {
  return parseLine(line, agentEventSchema)
}

/** Checks one line that the server wrote. Never throws. */
export function parseAgentCommand(line: string): ParsedLine<AgentCommand> {
  return parseLine(line, agentCommandSchema)
}

function parseLine<T>(line: string, schema: z.ZodType<T>): ParsedLine<T> {
  let value: unknown
  try {
    value = storable(JSON.parse(line))
  } catch (error) {
    return { ok: false, reason: error instanceof SyntaxError ? 'not JSON' : (error as Error).message }
  }
  return checked(value, schema)
}

function checked<T>(value: unknown, schema: z.ZodType<T>): ParsedLine<T> {
  const parsed = schema.safeParse(value, firstFault)
  if (parsed.success) return { ok: true, value: parsed.data }
  const issue = parsed.error.issues[0]
  const reason = `${issue?.path.join('.') || 'line'}: ${issue?.message ?? 'invalid'}`
  return { ok: false, reason: reason.slice(0, 500) }
}

/**
 * A copy that PostgreSQL accepts and a browser can read: no NUL, no lone surrogate, no `__proto__` key. Throws a `RangeError` for
 * too deep a nesting, and for too many values (arrays, objects and their items together).
 */
function storable(root: unknown): unknown {
  let valuesLeft = agentLineValuesMax
  return copyOf(root, agentLineDepthMax)

  function copyOf(value: unknown, depthLeft: number): unknown {
    if (valuesLeft-- === 0) throw new RangeError(`more than ${agentLineValuesMax} values`)
    if (typeof value === 'string') return storableText(value)
    if (typeof value !== 'object' || value === null) return value
    if (depthLeft === 0) throw new RangeError(`nested deeper than ${agentLineDepthMax}`)
    if (Array.isArray(value)) return value.map((item) => copyOf(item, depthLeft - 1))
    const copy: Record<string, unknown> = {}
    for (const [key, item] of Object.entries(value)) {
      if (key !== '__proto__') copy[storableText(key)] = copyOf(item, depthLeft - 1)
    }
    return copy
  }
}

/** `storable` of a value that is within the bounds. */
async function storableInSlices(value: unknown, slice: TimeSlice): Promise<unknown> {
  await slice.next()
  if (typeof value === 'string') return await storableLongText(value, slice)
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) {
    const items: unknown[] = []
    for (const item of value) items.push(await storableInSlices(item, slice))
    return items
  }
  const copy: Record<string, unknown> = {}
  for (const [key, item] of Object.entries(value)) {
    if (key !== '__proto__') copy[storableText(key)] = await storableInSlices(item, slice)
  }
  return copy
}

async function storableLongText(text: string, slice: TimeSlice): Promise<string> {
  if (text.length <= partChars) return storableText(text)
  let whole = ''
  for (let at = 0; at < text.length;) {
    await slice.next()
    const end = at + partChars
    // Both halves of a character stay together.
    const until = /[\ud800-\udbff]/.test(text.charAt(end - 1)) ? end - 1 : end
    whole += storableText(text.slice(at, until))
    at = until
  }
  return whole
}

function storableText(text: string): string {
  return text.toWellFormed().replaceAll('\0', '\u{fffd}')
}
