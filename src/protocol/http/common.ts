import { z } from 'zod'
import { errorCodes } from '../../errors.ts'
import { namePattern, nameFault } from '../../lib/resource-name.ts'

/** ISO 8601 UTC, to the second (sandbox API) or to the millisecond (Sessions API). */
export const secondTime = z
  .string()
  .regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
  .meta({ examples: ['2026-01-15T10:30:00Z'] })
export const milliTime = z
  .string()
  .regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  .meta({ examples: ['2026-01-15T10:30:00.000Z'] })

/** A number is an id. */
export const user = z
  .union([z.string(), z.int().nonnegative().transform(String)])
  .describe('Name or id of a user of the sandbox, with a group behind a colon if wanted')

/** A name for a new sandbox or session. */
export const resourceName = z
  .string()
  .superRefine((given, context) => {
    const message = nameFault(given)
    if (message !== undefined) context.addIssue({ code: 'custom', message })
  })
  .meta({ pattern: namePattern.source })

export const envs = z.record(z.string(), z.string()).describe('Environment variables')

/** Thirty days, the longest timeout. The operator may set a lower one (`ATOLL_LIMITS`), which the service checks. */
export const timeoutSecondsMax = 2_592_000
export const timeout = z.int().min(0).max(timeoutSecondsMax).describe('Rolling idle timeout in seconds; 0 means never')

/**
 * Sizes of a sandbox. The reference has the bounds and defaults of an installation as it is shipped; an operator may set others
 * (`ATOLL_LIMITS`), so the service checks them.
 */
export const cpuCount = z.int().min(1).meta({ maximum: 64 })
export const memoryMB = z.int().min(1).meta({ minimum: 64, maximum: 65_536 })
export const diskMB = z.int().min(1).meta({ minimum: 64, maximum: 1_048_576 })

/** The rule of `sandbox/volume-input.ts`. */
export const volumeName = z.string().meta({ pattern: '^[a-z0-9][a-z0-9_.-]{0,62}$' })
/** The rule of `image/names.ts`. */
export const imageName = z
  .string()
  .meta({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$' })
/** A year. */
export const lifeSecondsMax = 31_536_000
export const onIdle = z
  .enum(['hibernate', 'stop'])
  .describe('What the end of the idle timeout does: `hibernate` keeps it for the next use, `stop` deletes it')
export const maxAgeSeconds = z
  .int()
  .min(0)
  .max(lifeSecondsMax)
  .describe('Seconds after its creation at which it is deleted, whatever its state; 0: never')
export const expiresInSeconds = z.int().min(1).max(lifeSecondsMax)

/** What chooses a page of a list whose answer names the next one in `X-Next-Cursor`. */
export const pageQuery = {
  limit: z.coerce.number().int().min(1).max(1000).optional().meta({ description: 'Most on a page', default: 1000 }),
  cursor: z.string().optional().describe('The page that `X-Next-Cursor` named'),
}

export const port = z.int().min(1).max(65_535)

export const empty = z.object({}).meta({ id: 'Empty', examples: [{}] })

const code = z.enum(errorCodes).describe('What is wrong, for programs: one of a closed list')

/** Errors of the sandbox API carry facts of their code beside it, such as `patchId`. */
export const sandboxError = z
  .looseObject({
    error: z.string().describe('What is wrong, for people'),
    code,
  })
  .meta({
    id: 'Error',
    description: 'Error of the sandbox API',
    examples: [{ error: 'no sandbox sb-0000000000000000', code: 'not_found' }],
  })

export const sessionErrorTypes = [
  'invalid_request',
  'unauthorized',
  'forbidden',
  'not_found',
  'conflict',
  'rate_limited',
  'unavailable',
  'internal_error',
] as const
export type SessionErrorType = (typeof sessionErrorTypes)[number]

export const sessionError = z
  .object({
    error: z
      .object({
        type: z.enum(sessionErrorTypes).describe('The kind of the error; several codes share one'),
        code,
        message: z.string().describe('What is wrong, for people'),
      })
      .describe('The error'),
  })
  .meta({
    id: 'SessionError',
    description: 'Error of the Sessions API',
    examples: [{ error: { type: 'not_found', message: 'no session session_0000000000000000', code: 'not_found' } }],
  })
