/**
 * Agent sessions, strictly on top of the sandbox service. `service.ts` authorises requests, `reducer.ts` decides what follows from
 * each fact, `repository.ts` commits it, and `runner.ts` carries it out.
 */
export { AccessTokens } from './access-token.ts'
export type * from './access-token.ts'
export * from './api.ts'
export * from './config.ts'
export { capsulePath } from './capsules.ts'
export type * from './capsules.ts'
export type * from './capsule-store.ts'
export type { ForkPlace, ForkRequest, ForkResult, Variant } from './fork-at.ts'
export type * from './history.ts'
export type { CompareSession, ComparedWork, SessionComparison } from './comparison.ts'
export type { ForkEstimate } from './estimate.ts'
export type { ChangeAgentConfig } from './reconfiguration.ts'
export type { RewindPreview, RewindRequest, Rewound } from './rewind.ts'
export type { Timeline, TimelineQuery, TimelineTurn, TurnUsage } from './timeline.ts'
export type * from './turn.ts'
export * from './service.ts'
export * from './session.ts'
export * from './store.ts'
export type { StreamBatch } from './stream.ts'
