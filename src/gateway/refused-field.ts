import { ServiceError } from '../errors.ts'

/** A field that the allow-list does not have, with the text in `message`. */
export class RefusedField extends ServiceError {
  /** `wire:path` without the positions in lists, as `ATOLL_GATEWAY_ALLOW` names it. */
  readonly field: string

  constructor(field: string, message: string) {
    super('invalid_request', message)
    this.field = field
  }
}
