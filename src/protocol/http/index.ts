/** Wire shapes of the HTTP API, one file a resource. They check requests, give types to routes, and become `openapi.json`. */
export * as common from './common.ts'
export * as checkpoints from './checkpoints.ts'
export * as exec from './exec.ts'
export * as files from './files.ts'
export * as inspection from './inspection.ts'
export * as previews from './previews.ts'
export * as sandboxes from './sandboxes.ts'
export * as sessions from './sessions.ts'
