import { agentLineBytesMax, encodeAgentLine, type AgentEvent } from '../protocol/agent.ts'

/** What a string in an event that does not fit a line is cut to. */
const cutCharacters = 16 * 1024

/** What stands in place of a secret. */
const concealed = '[concealed]'
const secrets = new Set<string>()

export type Emit = (event: AgentEvent) => void

/**
 * Takes standard output for the protocol: everything else that writes to it, `console` and libraries, goes to standard
 * error from now on. Writes to a pipe block, so a server that does not read stops the agent instead of filling memory.
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

/**
 * Keeps a secret out of all lines from now on: commands inherit the environment of the program that has it, and print it. It must
 * look the same in JSON. Returns what takes that back.
 */
export function keepSecret(secret: string): () => void {
  secrets.add(secret)
  return () => secrets.delete(secret)
}

/** The line of an event; one beyond the limit has its long strings cut. */
export function fittingLine(event: AgentEvent): string {
  const line = encodeAgentLine(event)
  if (Buffer.byteLength(line) <= agentLineBytesMax) return line
  const cut = JSON.stringify(event, (_key, value: unknown) =>
    typeof value === 'string' && value.length > cutCharacters
      ? `${value.slice(0, cutCharacters).toWellFormed()}… [${value.length - cutCharacters} characters cut]`
      : value,
  )
  if (Buffer.byteLength(cut) < agentLineBytesMax) return `${cut}\n`
  return encodeAgentLine({
    type: 'error',
    message: `An event of type ${event.type} was too large to be sent.`,
    code: 'agent_error',
    fatal: false,
  })
}
