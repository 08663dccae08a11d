import { z } from 'zod'
import { defined } from '../lib/defined.ts'
import { maxAgeSeconds, onIdle } from '../protocol/http/common.ts'
import type { SandboxDefaults } from '../sandbox/index.ts'
import { readJson } from './limits.ts'

/** `ATOLL_SANDBOX_DEFAULTS`: a JSON object with the fields of a create that it stands in for. */
export function readSandboxDefaults(text: string, timeoutSecondsMax: number, faults: string[]): SandboxDefaults {
  const rule = `must be a whole number from 0 to ${timeoutSecondsMax}`
  const schema = z.strictObject({
    timeout: z.int(rule).min(0, rule).max(timeoutSecondsMax, rule).optional(),
    onIdle: onIdle.optional(),
    maxAgeSeconds: maxAgeSeconds.optional(),
  })
  const { timeout, ...rest } = readJson('ATOLL_SANDBOX_DEFAULTS', text, schema, faults) ?? {}
  return defined({ timeoutSeconds: timeout, ...rest })
}
