import { ServiceError } from '../errors.ts'

const countMax = 20
const valueLengthMax = 1024
const namePattern = /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$/
/** What frames the request, names its receiver, or says who has signed it. */
const reserved =
  /^(?:host|content-.*|connection|transfer-encoding|upgrade|te|trailer|expect|keep-alive|proxy-.*|user-agent|(?:svix|webhook)-.*)$/i

/** Throws `invalid_request` for headers that no request may have, or that are not the client's to set. */
export function assertHeaders(headers: Readonly<Record<string, string>>, field: string): void {
  const entries = Object.entries(headers)
  if (entries.length > countMax) throw invalid(field, `must be at most ${countMax} headers`)
  for (const [name, value] of entries) {
    const place = `${field}.${name.slice(0, 64)}`
    if (!namePattern.test(name)) throw invalid(place, 'is no name of a header')
    if (reserved.test(name)) throw invalid(place, 'is set by the server')
    if (value.length > valueLengthMax || !/^[\x20-\x7e]*$/.test(value))
      throw invalid(place, `must be at most ${valueLengthMax} printable ASCII characters`)
  }
}

function invalid(field: string, rule: string): ServiceError {
  return new ServiceError('invalid_request', `${field}: ${rule}`, { details: { field } })
}
