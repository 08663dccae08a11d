import { z } from 'zod'
import type { Atoll } from '../../sdk/src/index.ts'

/** Where the client of MCP and the previews are, so that a URL that it gets is one that it can open. */
export interface Addresses {
  /** Where the client reaches the API. */
  api: string
  /** Protocol, host and port of previews; undefined where only the server knows its protocol. */
  preview?: string | undefined
}

/** What a tool may use while it works for one call. */
export interface ToolContext {
  client: Atoll
  addresses: Addresses
  /** Aborts when the caller cancels or has gone. */
  signal: AbortSignal
  /** Tells a caller that asked for it how far the work is. */
  progress: (message: string) => void
}

/** A tool of the MCP server. Names, arguments and results are in snake case, as models know them. */
export interface Tool {
  name: string
  title: string
  /** For a model: each word costs the caller tokens. */
  description: string
  input: z.ZodObject
  output: z.ZodObject
  hints: ToolHints
  run(args: never, context: ToolContext): Promise<Record<string, unknown>>
}

/** See `ToolAnnotations` of the protocol. */
interface ToolHints {
  readOnlyHint: boolean
  destructiveHint: boolean
  idempotentHint: boolean
  openWorldHint: boolean
}

/** The tool only reads. */
export const reads: ToolHints = hints({ readOnlyHint: true, idempotentHint: true })
/** The tool makes something new each time. */
export const makes: ToolHints = hints({})
/** A repeat of the call changes nothing more. */
export const sets: ToolHints = hints({ idempotentHint: true })
/** The tool removes or overwrites, and a repeat changes nothing more. */
export const removes: ToolHints = hints({ destructiveHint: true, idempotentHint: true })
/** The tool does whatever its arguments say, to a machine with a way to the internet. */
export const runsAnything: ToolHints = hints({ destructiveHint: true, openWorldHint: true })

function hints(some: Partial<ToolHints>): ToolHints {
  return { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: false, ...some }
}

/** Types `run` by the schemas. An argument that the tool does not have is refused with those that it has, so that a model corrects itself. */
export function tool<Input extends z.ZodObject, Output extends z.ZodObject>(
  spec: Omit<Tool, 'input' | 'output' | 'run'> & {
    input: Input
    output: Output
    run(args: z.output<Input>, context: ToolContext): Promise<z.input<Output>>
  },
): Tool {
  const names = Object.keys(spec.input.shape)
  const error = ({ code, keys = [] }: { code?: string; keys?: unknown }) =>
    code === 'unrecognized_keys'
      ? `there is no argument ${[keys].flat().join(', ')}; there are ${names.join(', ')}`
      : undefined
  return { ...spec, input: z.strictObject(spec.input.shape, { error: error as z.core.$ZodErrorMap }) }
}
