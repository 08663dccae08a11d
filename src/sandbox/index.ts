/** Routes and sessions call the service; drivers and stores implement the ports. */
export type { Cache } from './cache.ts'
export type * from './checkpoint.ts'
export type * from './checkpoint-records.ts'
export type * from './egress/egress.ts'
export { type EgressInput, takeEgress } from './egress/input.ts'
export type * from './egress/log.ts'
export type * from './egress/policy.ts'
export type * from './egress/state.ts'
export type * from './exec.ts'
export type * from './ports/egress.ts'
export type * from './ports/egress-store.ts'
export type * from './ports/secret-source.ts'
export type * from './files.ts'
export type { StartFromCheckpoint } from './fork.ts'
export type * from './mounts.ts'
export * from './ports/guest.ts'
export * from './ports/runtime-driver.ts'
export * from './ports/sandbox-store.ts'
export type { VolumeStore } from './ports/volume-store.ts'
export type { TxtResolver } from './ports/txt-resolver.ts'
export type { CreatePatch, Patch, PatchStrategy } from './patch.ts'
export type { ProcessKind } from './process.ts'
export type * from './preview.ts'
export type { WantedSizes } from './scaling.ts'
export { assertEnvs, assertInput, assertInteger, assertName, assertPath, assertSigned, userPattern } from './input.ts'
export { defaultSandboxLimits, type SandboxLimits } from './quota.ts'
export { readmitCheckpoint, readmitSandbox } from './recovery.ts'
export * from './sandbox.ts'
export type * from './volume.ts'
export type { UsageSample } from './usage-sampler.ts'
export {
  type ListSandboxes,
  type RunningSandboxService,
  type SandboxService,
  type SandboxServiceDeps,
  createSandboxService,
} from './service.ts'
