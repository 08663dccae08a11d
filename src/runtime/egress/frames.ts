import type { EgressEntriesDropped, EgressEntry, EgressPlan } from '../../sandbox/ports/egress.ts'

/** See docs/internals/egress.md § Frames between the server and the process. The field names are those of the wire. */
export interface EgressStart {
  op: 'start'
  listen: string
  dns: string
  explicit: string
  resolvers: readonly string[]
  /** PEM. */
  roots: string
  denied: readonly string[]
  private: readonly string[]
  upstream?: string
  own_names: Readonly<Record<string, string>>
}

export type ToEgress =
  | EgressStart
  | { op: 'put'; sandbox: string; address: string; plan: EgressPlan }
  | { op: 'drop'; sandbox: string }

export type FromEgress =
  | { op: 'ok'; seq: number }
  | { op: 'error'; seq: number; message: string }
  | { op: 'ready' }
  | { op: 'entry'; entry: EgressEntry }
  | { op: 'entries_dropped'; dropped: EgressEntriesDropped }
  | { op: 'trouble'; message: string }

const decisions = ['allowed', 'denied', 'would_deny', 'failed'] as const
const protocols = ['tls', 'http', 'https', 'tcp', 'dns', 'h2', 'ws'] as const

/** Characters of texts in what the process reports. What is longer is cut. */
const charsMax = {
  id: 64,
  name: 256,
  host: 255,
  address: 45,
  method: 32,
  path: 1024,
  rule: 256,
  reason: 512,
  message: 2000,
}
const secretsMax = 64

/**
 * Reads one line of the process. It reads what sandboxes have sent, so nothing of its shape is taken on trust. Undefined for what is no frame, or of
 * no known kind.
 */
export function readFrame(line: string): FromEgress | undefined {
  const frame = parse(line)
  if (frame === undefined) return undefined
  const { op } = frame
  if (op === 'ready') return { op }
  if (op === 'ok' || op === 'error') {
    const seq = count(frame['seq'])
    if (seq === undefined) return undefined
    return op === 'ok' ? { op, seq } : { op, seq, message: text(frame['message'], 'message') ?? 'no reason' }
  }
  if (op === 'trouble') return { op, message: text(frame['message'], 'message') ?? '' }
  if (op === 'entry') {
    const entry = readEntry(frame)
    return entry && { op, entry }
  }
  if (op !== 'entries_dropped') return undefined
  const [sandbox, dropped] = [text(frame['sandbox'], 'id'), count(frame['count'])]
  if (sandbox === undefined || dropped === undefined) return undefined
  const bytes = { sent: count(frame['sent']) ?? 0, received: count(frame['received']) ?? 0 }
  return { op, dropped: { sandbox, count: dropped, ...bytes } }
}

function readEntry(frame: Record<string, unknown>): EgressEntry | undefined {
  const sandbox = text(frame['sandbox'], 'id')
  const decision = oneOf(decisions, frame['decision'])
  const protocol = oneOf(protocols, frame['protocol'])
  const [time, port] = [count(frame['time']), count(frame['port'])]
  if (sandbox === undefined || decision === undefined || protocol === undefined) return undefined
  if (time === undefined || port === undefined || port > 65_535) return undefined
  const entry: EgressEntry = {
    ...{ sandbox, time, decision, protocol, port },
    ...{ sent: count(frame['sent']) ?? 0, received: count(frame['received']) ?? 0, ms: count(frame['ms']) ?? 0 },
  }
  for (const name of ['host', 'address', 'method', 'path', 'rule', 'reason'] as const) {
    const value = text(frame[name], name)
    if (value !== undefined) entry[name] = value
  }
  const status = count(frame['status'])
  if (status !== undefined && status <= 999) entry.status = status
  const { secrets } = frame
  if (Array.isArray(secrets)) {
    entry.secrets = secrets.slice(0, secretsMax).flatMap((name: unknown) => text(name, 'name') ?? [])
  }
  return entry
}

function parse(line: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(line)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined
  } catch {
    return undefined
  }
}

function text(value: unknown, of: keyof typeof charsMax): string | undefined {
  return typeof value === 'string' ? value.slice(0, charsMax[of]) : undefined
}

function count(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined
}

function oneOf<Value extends string>(values: readonly Value[], value: unknown): Value | undefined {
  return values.find((one) => one === value)
}
