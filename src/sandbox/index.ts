/**
 * The domain of sandboxes: their records, the ports behind which they run and are kept, and the service that decides.
 * Routes and sessions call the service; drivers and stores implement the ports.
 */
export * from './api.ts'
export * from './checkpoint.ts'
export * from './ports/runtime-driver.ts'
export * from './ports/guest.ts'
export type { Patch, PatchStrategy } from './patch.ts'
export * from './preview.ts'
export { readmitCheckpoint, readmitSandbox } from './readmission.ts'
export * from './sandbox.ts'
export { defaultSandboxLimits, type SandboxLimits } from './limits.ts'
export { createSandboxService, type RunningSandboxService, type SandboxServiceDeps } from './service.ts'
export * from './ports/sandbox-store.ts'
export type { TxtResolver } from './txt-resolver.ts'
