import { ForbiddenError } from 'atoll-sdk'
import { reasonOf } from '../../../ui/states.tsx'

/** Why a file could not be used. Its own rights forbid it, not those of the key. */
export function fileReason(error: unknown): string {
  if (error instanceof ForbiddenError && error.message.includes('permission denied')) return `${error.message}.`
  return reasonOf(error)
}
