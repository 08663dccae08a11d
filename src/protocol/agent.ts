import { z } from 'zod'

/**
 * The JSON lines between the server and the agent process of a session: commands on its standard input, events on its
 * standard output, one JSON object a line, UTF-8, `\n` at the end. `docs/agent.md` tells the story.
 *
 * Order. The server sends `configure` once per process, then `message`s one at a time: the next one after the
 * `turn_complete` of the one before. Per message the agent answers `turn_started`, any number of `assistant`,
 * `tool_use_summary`, `artifact` and `error`, one `result`, one `turn_complete`, whatever fails.
 *
 * Repeats. A `message` whose id is already finished is answered by its `turn_complete` alone; one that is running by its
 * `turn_started` alone; one that a killed process left half done is taken up where its conversation on disk stands.
 *
 * Names of fields: commands are camelCase; events have the names that clients see, since they are passed on.
 */

/** Longest line in either direction, newline not counted. Both sides drop a longer one and go on. */
export const agentLineBytesMax = 4 * 1024 * 1024

/** Deepest nesting of arrays and objects that is accepted of the agent: what follows (JSON, databases) recurses. */
export const agentLineDepthMax = 64

/**
 * Most values in one line of the agent, far more than the blocks of the longest message. A line of nothing but `{}` would
 * take sixteen times its length in the memory of whoever reads it.
 */
export const agentLineValuesMax = 100_000

/** Environment of the agent process. The token is the session's own; there is no model key inside a sandbox. */
export const agentEnvironment = {
  /** Such as `http://gateway.atoll.internal:4180`, without a path. */
  gatewayUrl: 'ATOLL_GATEWAY_URL',
  gatewayToken: 'ATOLL_GATEWAY_TOKEN',
} as const

export const toolNames = ['bash', 'read', 'write', 'edit', 'glob', 'grep', 'ls'] as const

/** Wires of the gateway that a model can be reached by. */
export const modelApis = ['anthropic-messages', 'openai-completions', 'openai-responses'] as const

const absolutePath = z.string().min(1).max(4096).startsWith('/')
const messageId = z.string().min(1).max(200)
const modelName = z.string().min(1).max(200)

const rate = z.number().min(0)
const price = z
  .object({
    inputPerMillion: rate,
    cacheReadPerMillion: rate.optional(),
    cacheWritePerMillion: rate.optional(),
    outputPerMillion: rate,
  })
  // While an upgrade is under way, the server that starts this agent may be of a version without them.
  .transform((given) => ({
    ...given,
    cacheReadPerMillion: given.cacheReadPerMillion ?? given.inputPerMillion,
    cacheWritePerMillion: given.cacheWritePerMillion ?? given.inputPerMillion,
  }))

export const configureCommandSchema = z.object({
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
  /** Appended to the harness's own prompt. */
  systemPrompt: z
    .string()
    .max(1024 * 1024)
    .optional(),
  /** Names of `toolNames`; absent means all. Unknown names are ignored. */
  allowedTools: z.array(z.string().max(200)).max(100).optional(),
  /** Working directory; made when it is missing. */
  cwd: absolutePath.default('/workspace/app'),
  /** Calls of the model in one turn. */
  maxTurns: z.int().min(1).max(10_000).optional(),
  /** Of the model, in US dollars; without it the harness tells the cost, if it knows it. */
  price: price.optional(),
  /** Where the conversation and the turns done are kept. */
  stateDir: absolutePath.default('/workspace/agent/.atoll'),
  /** Searched for `SKILL.md` files, at any depth. */
  skillsDir: absolutePath.default('/workspace/agent'),
  /** `SKILL.md` files outside of `skillsDir`. */
  skillFiles: z.array(absolutePath).max(200).optional(),
})

export const messageCommandSchema = z.object({
  type: z.literal('message'),
  messageId,
  content: z.string().max(1024 * 1024),
})

/** Ends the running turn with `result` subtype `interrupted`. Without a running turn nothing happens. */
export const interruptCommandSchema = z.object({
  type: z.literal('interrupt'),
  messageId: messageId.optional(),
})

/** Interrupts what runs and exits with status 0. So does the end of standard input. */
export const shutdownCommandSchema = z.object({ type: z.literal('shutdown') })

export const agentCommandSchema = z.discriminatedUnion('type', [
  configureCommandSchema,
  messageCommandSchema,
  interruptCommandSchema,
  shutdownCommandSchema,
])

const count = z.int().min(0).max(Number.MAX_SAFE_INTEGER)
const shortText = z.string().max(1000)
const agentSessionId = z.string().max(200)
const usage = z.object({
  /** All that the model has read, with what came from a cache and what went into one. */
  input_tokens: count,
  /** Parts of it. Agents of older images do not tell them. */
  cache_read_input_tokens: count.optional(),
  cache_creation_input_tokens: count.optional(),
  output_tokens: count,
})

/** The process is up. Sent once, before any command is read. */
export const readyEventSchema = z.object({
  type: z.literal('ready'),
  harness: shortText,
  version: shortText,
})

export const configuredEventSchema = z.object({
  type: z.literal('configured'),
  model: shortText,
  tools: z.array(shortText).max(1000),
  cwd: z.string().max(4096),
})

export const textBlockSchema = z.object({ type: z.literal('text'), text: z.string() })

export const toolUseBlockSchema = z.object({
  type: z.literal('tool_use'),
  id: shortText,
  name: shortText,
  input: z.record(z.string(), z.unknown()),
})

export const assistantEventSchema = z.object({
  type: z.literal('assistant'),
  message: z.object({
    role: z.literal('assistant'),
    content: z.array(z.discriminatedUnion('type', [textBlockSchema, toolUseBlockSchema])).max(10_000),
    model: shortText.optional(),
    usage: usage.optional(),
  }),
  session_id: agentSessionId,
})

export const toolUseSummaryEventSchema = z.object({
  type: z.literal('tool_use_summary'),
  tool: shortText,
  tool_use_id: shortText,
  /** For a person, one line. */
  summary: shortText,
  is_error: z.boolean(),
  duration_ms: count,
})

export const resultSubtypes = ['success', 'error_max_turns', 'error_during_execution', 'interrupted'] as const

export const resultEventSchema = z.object({
  type: z.literal('result'),
  subtype: z.enum(resultSubtypes),
  /** The text of the last assistant message; on an error, what went wrong. */
  result: z.string(),
  /** Calls of the model. */
  num_turns: count,
  duration_ms: count,
  usage,
  total_cost_usd: z.number().min(0).optional(),
  session_id: agentSessionId,
})

export const turnCompleteEventSchema = z.object({
  type: z.literal('turn_complete'),
  message_id: messageId,
  session_id: agentSessionId,
})

export const errorEventSchema = z.object({
  type: z.literal('error'),
  message: z.string().max(64 * 1024),
  /** `budget_exceeded`, `model_error`, `agent_error`, `invalid_command`, `not_configured`, `unknown_harness` … */
  code: z.string().max(100),
  /** The process ends after it. */
  fatal: z.boolean(),
})

/**
 * The events that clients see. All come from the agent; the session service emits `error`, `result` and `turn_complete` too, where the
 * agent cannot. A new type is added here, and `session/` says in which state it accepts it.
 */
export const streamEventSchema = z.discriminatedUnion('type', [
  readyEventSchema,
  configuredEventSchema,
  assistantEventSchema,
  toolUseSummaryEventSchema,
  resultEventSchema,
  turnCompleteEventSchema,
  errorEventSchema,
])

/** For the server alone: the agent took the message and has it on disk. */
export const turnStartedEventSchema = z.object({
  type: z.literal('turn_started'),
  message_id: messageId,
})

/** For the server alone: a file that was created or changed, by a tool when it is told at once, by a command at the end of the turn. */
export const artifactEventSchema = z.object({
  type: z.literal('artifact'),
  path: z.string().min(1).max(4096),
  summary: shortText,
})

export const agentEventSchema = z.discriminatedUnion('type', [
  ...streamEventSchema.options,
  turnStartedEventSchema,
  artifactEventSchema,
])

export type ConfigureCommand = z.output<typeof configureCommandSchema>
export type MessageCommand = z.output<typeof messageCommandSchema>
/** A command as it is written: fields with defaults may be left out. */
export type AgentCommandInput = z.input<typeof agentCommandSchema>
export type AgentCommand = z.output<typeof agentCommandSchema>
/** The JSON object of one stream event, as clients get it. */
export type StreamEventData = z.output<typeof streamEventSchema>
export type AgentEvent = z.output<typeof agentEventSchema>
export type AgentEventOf<Type extends AgentEvent['type']> = Extract<AgentEvent, { type: Type }>
export type ResultSubtype = (typeof resultSubtypes)[number]

/** One line, with its newline, ready for the other side's input. */
export function encodeAgentLine(line: AgentCommandInput | AgentEvent): string {
  return `${JSON.stringify(line)}\n`
}

export type ParsedLine<T> = { ok: true; value: T } | { ok: false; reason: string }

/** Checks one line that the agent wrote. Never throws: the sandbox is hostile. */
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
    return {
      ok: false,
      reason: error instanceof SyntaxError ? 'not JSON' : (error as Error).message,
    }
  }
  const parsed = schema.safeParse(value)
  if (parsed.success) return { ok: true, value: parsed.data }
  const issue = parsed.error.issues[0]
  return {
    ok: false,
    reason: `${issue?.path.join('.') || 'line'}: ${issue?.message ?? 'invalid'}`.slice(0, 500),
  }
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

function storableText(text: string): string {
  return text.toWellFormed().replaceAll('\0', '\u{fffd}')
}
