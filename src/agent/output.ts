import { agentEventBytesMax, encodeAgentLine, type AgentEvent } from '../protocol/agent.ts'

/** Strings of an oversized event are cut to this length. */
const cutCharacters = 16 * 1024

const concealed = '[concealed]'
const secrets = new Set<string>()

export type Emit = (event: AgentEvent) => void

/**
 * Reserves standard output for the protocol: `console` and libraries write to standard error from now on. Writes to a pipe block, so a
 * server that does not read stops the agent instead of filling its memory.
 */
export function takeStandardOutput(): Emit {
  const write = process.stdout.write.bind(process.stdout)
  process.stdout.write = process.stderr.write.bind(process.stderr)
  return (event) => {
    let line = fittingLine(event)
    for (const secret of secrets) line = line.replaceAll(secret, concealed)
    write(line)
  }
}

/** Removes a secret, which needs no escapes in JSON, from all later lines: commands can print it. Returns a function that ends this. */
export function concealSecret(secret: string): () => void {
  secrets.add(secret)
  return () => secrets.delete(secret)
}

/** How many characters at the end of a text may be the beginning of a secret: what follows must be seen in the same line to conceal it. */
export function charactersHeldBack(text: string): number {
  let held = 0
  for (const secret of secrets) {
    let count = Math.min(secret.length - 1, text.length)
    while (count > held && !text.endsWith(secret.slice(0, count))) count -= 1
    held = Math.max(held, count)
  }
  return held
}

/** The line of an event. Cuts the long strings of an oversized event, and a line before it says so. */
export function fittingLine(event: AgentEvent): string {
  const line = encodeAgentLine(event)
  if (Buffer.byteLength(line) <= agentEventBytesMax) return line
  const cut = JSON.stringify(event, (_key, value: unknown) =>
    typeof value === 'string' && value.length > cutCharacters
      ? `${value.slice(0, cutCharacters).toWellFormed()}… [${value.length - cutCharacters} characters cut]`
      : value,
  )
  const isCut = Buffer.byteLength(cut) < agentEventBytesMax
  const message = `An event of type ${event.type} was too large${isCut ? ' and is cut' : ' to be sent'}.`
  return encodeAgentLine({ type: 'error', message, code: 'output_cut', fatal: false }) + (isCut ? `${cut}\n` : '')
}
