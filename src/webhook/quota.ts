import { ServiceError } from '../errors.ts'

/** Throws `quota_exceeded` when an organisation that has so many destinations may not have as many more. */
export function assertWithinQuota(count: number, more: number, destinationsMax: number): void {
  if (count + more <= destinationsMax) return
  const message = `the organisation has ${count} destinations of webhooks and may have ${destinationsMax}`
  throw new ServiceError('quota_exceeded', message, { details: { limit: destinationsMax } })
}
