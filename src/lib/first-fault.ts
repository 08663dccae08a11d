import type { z } from 'zod'

/**
 * For `safeParse` of what a tenant sends: the check of a list or an object ends at the first fault. All of them would take hundreds of
 * times the memory of the input, and fill the stack. An option that Zod keeps for its own `validate`; a test holds it to it.
 */
export const firstFault: Pick<z.core.ParseContextInternal, 'abortEarly' | 'jitless'> = { abortEarly: true }
