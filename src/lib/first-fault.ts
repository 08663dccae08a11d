import type { z } from 'zod'

/**
 * For `safeParse` of what a tenant sends: the check of a list or an object ends at the first fault. Collecting all would take hundreds of
 * times the memory of the input, and fill the stack. Zod keeps the option for its own `validate`, so a test checks its effect.
 */
export const firstFault: Pick<z.core.ParseContextInternal, 'abortEarly' | 'jitless'> = { abortEarly: true }
