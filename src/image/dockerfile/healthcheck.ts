import type { Healthcheck } from '../../sandbox/index.ts'
import { listIn } from './command.ts'
import { quoted, refused } from './fault.ts'
import { Flags } from './flags.ts'
import type { RawInstruction } from './lines.ts'

const unitsMs: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  μs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
}
const partPattern = /(\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(ns|us|µs|μs|ms|s|m|h)/y
const retriesMax = 1_000_000

export function healthcheckOf(raw: RawInstruction): Healthcheck {
  const { line, text } = raw
  const flags = new Flags(raw)
  const [kind = ''] = text.split(/\s/, 1)
  const command = text.slice(kind.length).trim()
  switch (kind.toUpperCase()) {
    case 'NONE':
      if (command !== '') throw refused(line, 'HEALTHCHECK NONE takes nothing more')
      return { test: ['NONE'] }
    case 'CMD':
      return { test: testOf(command, line), ...timesOf(flags, line) }
    default:
      throw refused(line, 'HEALTHCHECK takes CMD and a command, or NONE')
  }
}

function testOf(command: string, line: number): string[] {
  const words = listIn({ line, text: command })
  if (command === '' || words?.length === 0) throw refused(line, 'HEALTHCHECK CMD takes a command')
  return words === undefined ? ['CMD-SHELL', command] : ['CMD', ...words]
}

/** Zero, as Docker has it, is the default. */
function timesOf(flags: Flags, line: number): Omit<Healthcheck, 'test'> {
  const times: Omit<Healthcheck, 'test'> = {}
  for (const [flag, key] of [
    ['interval', 'intervalMs'],
    ['timeout', 'timeoutMs'],
    ['start-period', 'startPeriodMs'],
    ['start-interval', 'startIntervalMs'],
  ] as const) {
    const text = flags.text(flag)
    if (text === undefined) continue
    const ms = durationMs(text)
    if (ms === undefined || (ms !== 0 && ms < 1))
      throw refused(line, `--${flag} takes a duration of a millisecond or more, such as 1m30s, not ${quoted(text)}`)
    if (ms > 0) times[key] = Math.round(ms)
  }
  const text = flags.text('retries')
  if (text === undefined) return times
  const retries = /^\+?\d{1,9}$/.test(text) ? Number(text) : NaN
  if (!(retries <= retriesMax))
    throw refused(line, `--retries takes a number from 0 to ${retriesMax}, not ${quoted(text)}`)
  if (retries > 0) times.retries = retries
  return times
}

/** A duration of Go: `1h30m`, `1.5s`, `0`. Undefined for other text. */
function durationMs(text: string): number | undefined {
  const unsigned = text.startsWith('+') ? text.slice(1) : text
  if (unsigned === '0') return 0
  if (unsigned === '' || unsigned.length > 64) return undefined
  let sum = 0
  for (let at = 0; at < unsigned.length; at = partPattern.lastIndex) {
    partPattern.lastIndex = at
    const [part, number, unit] = partPattern.exec(unsigned) ?? []
    if (part === undefined) return undefined
    sum += Number(number) * unitsMs[unit!]!
  }
  return sum <= Number.MAX_SAFE_INTEGER ? sum : undefined
}
