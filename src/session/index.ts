/**
 * Agent sessions, strictly on top of the sandbox service. `service.ts` decides who may do what; a worker per running
 * session drives it (`worker.ts`); all that happened goes through its ledger into the store, one commit at a time.
 */
export { AccessTokens } from './access-token.ts'
export type * from './access-token.ts'
export * from './api.ts'
export * from './config.ts'
export { sessionCostUsd } from './cost.ts'
export { eventText } from './event-text.ts'
export type * from './export.ts'
export * from './service.ts'
export * from './session.ts'
export * from './store.ts'
