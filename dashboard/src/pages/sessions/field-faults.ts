import { AtollError } from 'atoll-sdk'

export interface Faults {
  /** Why a field was refused, by its name in the API. */
  fields: Readonly<Record<string, string>>
  /** What belongs to no field of the form. */
  rest: unknown
}

/** Puts a refusal beside the field that it is about: the server names it in `details.field`, or begins the message with it. */
export function faultsOf(error: unknown, names: readonly string[]): Faults {
  if (error === null || error === undefined) return { fields: {}, rest: undefined }
  if (!(error instanceof AtollError)) return { fields: {}, rest: error }
  const { message, details } = error
  const told = typeof details['field'] === 'string' ? details['field'] : /^[\w.[\]]+/.exec(message)?.[0]
  // A field may hold others: `volumes[0].path`.
  const name = names.find(
    (one) => told === one || told?.startsWith(`${one}.`) === true || told?.startsWith(`${one}[`) === true,
  )
  if (name === undefined) return { fields: {}, rest: error }
  const rest =
    told !== undefined && message.startsWith(told) ? message.slice(told.length).replace(/^[:\s]+/, '') : message
  const reason = told === name ? rest : `${told?.slice(name.length).replace(/^\./, '')} ${rest}`
  return { fields: { [name]: `${reason.slice(0, 1).toUpperCase()}${reason.slice(1)}` }, rest: undefined }
}
