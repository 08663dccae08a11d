import { CommanderError } from 'commander'
import { AtollError, ConnectionError, UnexpectedAnswerError } from '../../sdk/src/index.ts'
import { CliError, OwnFailure, UsageError } from './exit-codes.ts'
import { printable } from './output.ts'

/** Writes an error as one line for a person, or as one JSON object. */
export function reportFailure(error: unknown, isJson: boolean): void {
  const { message, code, hint, details } = told(error)
  if (isJson) {
    process.stderr.write(`${JSON.stringify({ ...details, error: message, ...(code ? { code } : {}) })}\n`)
    return
  }
  const line = printable(message).replaceAll(/\s*\n\s*/g, ' ')
  process.stderr.write(`atoll: ${line}${hint === undefined ? '' : ` (${hint})`}\n`)
}

interface Told {
  message: string
  code?: string | undefined
  hint?: string | undefined
  details?: Record<string, unknown>
}

function told(error: unknown): Told {
  if (error instanceof OwnFailure) return told(error.cause)
  if (error instanceof CommanderError) {
    return { message: error.message.replace(/^error: /, ''), code: 'usage', hint: 'atoll help lists the commands' }
  }
  if (error instanceof UsageError) return { message: error.message, code: 'usage' }
  if (error instanceof CliError) return { ...inner(error.cause), message: error.message, hint: error.hint }
  if (error instanceof AtollError) return { ...inner(error), message: error.message, hint: hintOf(error) }
  return { message: error instanceof Error ? error.message : String(error) }
}

function inner(error: unknown): { code?: string | undefined; details?: Record<string, unknown> } {
  if (!(error instanceof AtollError)) return {}
  const { code, details, retryAfterSeconds } = error
  return { code, details: { ...details, ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }) } }
}

function hintOf(error: AtollError): string | undefined {
  if (error.status === 401) return 'atoll login saves a key, ATOLL_API_KEY or --key gives one'
  if (error instanceof UnexpectedAnswerError) return 'is it the URL of an Atoll server?'
  if (error instanceof ConnectionError) return 'atoll up starts a server here, --url names another one'
  if (error.retryAfterSeconds !== undefined) return `try again in ${error.retryAfterSeconds} s`
  return undefined
}
