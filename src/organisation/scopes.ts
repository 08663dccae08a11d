import { scopes } from '../protocol/organisation.ts'

export { scopes }

export type Scope = (typeof scopes)[number]
