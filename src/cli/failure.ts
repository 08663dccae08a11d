import { CommanderError } from 'commander'
import { AtollError, ConnectionError, RequestTimeoutError, UnexpectedAnswerError } from '../../sdk/src/index.ts'
import { CliError, exitCodeOf, exitCodes, OwnFailure, UsageError } from './exit-codes.ts'
import { faultOf } from './faults.ts'
import { jsonText, printable } from './output.ts'

/** Writes an error as one line for a person, or as one JSON object. */
export function reportFailure(error: unknown, { isJson, help }: ReportOptions): void {
  const { message, code, hint, details } = told(error, help)
  if (isJson) {
    process.stderr.write(`${jsonText({ ...details, error: message, code })}\n`)
    return
  }
  const line = printable(message).replaceAll(/\s*\n\s*/g, ' ')
  process.stderr.write(`atoll: ${line}${hint === undefined ? '' : ` (${hint})`}\n`)
}

interface ReportOptions {
  isJson: boolean
  /** How the help of the command is asked for. */
  help: string
}

interface Told {
  message: string
  /** Of the API, or one of those in docs/use/cli.md. */
  code: string
  hint?: string | undefined
  details?: Record<string, unknown>
}

function told(error: unknown, help: string): Told {
  if (error instanceof OwnFailure) return told(error.cause, help)
  if (error instanceof CommanderError) {
    return { message: error.message.replace(/^error: /, ''), code: 'usage', hint: `see ${help}` }
  }
  if (error instanceof UsageError) return { message: error.message, code: 'usage' }
  if (error instanceof CliError) {
    const inner = error.cause === undefined ? undefined : told(error.cause, help)
    const code = inner === undefined || inner.code === 'failed' ? codeOf(error.exitCode) : inner.code
    return { ...inner, message: error.message, code, hint: error.hint ?? inner?.hint }
  }
  const fault = faultOf(error)
  if (fault !== undefined) return fault.code === 'unreachable' ? { ...fault, hint: fault.hint ?? urlHint } : fault
  if (error instanceof AtollError) return toldByServer(error)
  return { message: error instanceof Error ? error.message : String(error), code: 'failed' }
}

const urlHint = 'atoll up starts a server here, --url names another one'

function toldByServer(error: AtollError): Told {
  const { details, retryAfterSeconds } = error
  return {
    message: error.message.replace(/ within (\d+)000 ms \(requestTimeoutMs\)$/, ' within $1 s'),
    code: error.code ?? (error instanceof RequestTimeoutError ? 'timed_out' : codeOf(exitCodeOf(error))),
    hint: hintOf(error),
    details: { ...details, ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }) },
  }
}

function hintOf(error: AtollError): string | undefined {
  if (error.status === 401) return 'atoll login saves a key, ATOLL_API_KEY or --key gives one'
  if (error instanceof UnexpectedAnswerError) return 'is it the URL of an Atoll server?'
  if (error instanceof RequestTimeoutError) return '--request-timeout SECONDS gives it longer'
  if (error instanceof ConnectionError) return urlHint
  if (error.retryAfterSeconds !== undefined) return `try again in ${error.retryAfterSeconds} s`
  return undefined
}

/** The code of what has none of its own: the Sessions API, and failures of this program. */
function codeOf(exitCode: number): string {
  return codeNames.get(exitCode) ?? 'failed'
}

const codeNames = new Map<number, string>([
  [exitCodes.usage, 'usage'],
  [exitCodes.unreachable, 'unreachable'],
  [exitCodes.unauthorized, 'unauthorized'],
  [exitCodes.notFound, 'not_found'],
  [exitCodes.conflict, 'conflict'],
  [exitCodes.refusedForNow, 'unavailable'],
])
