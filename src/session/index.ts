/**
 * Agent sessions, strictly on top of the sandbox service. `service.ts` authorises requests, `reducer.ts` decides what follows from
 * each fact, `repository.ts` commits it, and `runner.ts` carries it out.
 */
export { AccessTokens } from './access-token.ts'
export type * from './access-token.ts'
export * from './api.ts'
export * from './config.ts'
export type * from './history.ts'
export * from './service.ts'
export * from './session.ts'
export * from './store.ts'
