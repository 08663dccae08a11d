import type { CreateSandbox } from '../sandbox.ts'
import type { SandboxSpec } from './runtime-driver.ts'

/** All that a new sandbox can be asked for: by a client, of the driver, and to go on from saved memory. */
type Asked = Partial<Omit<CreateSandbox & SandboxSpec, 'id' | 'volumes'>> & {
  volumes?: readonly unknown[]
  keepsMemory?: boolean
}

/**
 * Whether a warm sandbox serves a create with this field. `any`: the pool keeps its values apart, `create` of the driver sets it, or it is no
 * part of the machine. `none`: the machine has it from its start on, so a warm one lacks it. A new field does not compile until it has a
 * rule; one with the wrong rule yields sandboxes that silently lack it.
 */
const rules: Record<keyof Asked, 'any' | 'none'> = {
  owner: 'any',
  image: 'any',
  from: 'any',
  cpuCount: 'any',
  memoryMb: 'any',
  diskMb: 'any',
  // They are mounted before the guest starts.
  volumes: 'none',
  // Its processes go on from the restore, which must not happen before somebody wants it.
  keepsMemory: 'none',
  // The record has them, and commands get them from there.
  envs: 'any',
  user: 'any',
  metadata: 'any',
  name: 'any',
  timeoutSeconds: 'any',
  onIdle: 'any',
  maxAgeSeconds: 'any',
  previewAuth: 'any',
  // The driver asks for it when it hands out a warm one.
  secretStore: 'any',
  secrets: 'any',
  egress: 'any',
  egressAllowlist: 'any',
  secretAllowedHosts: 'any',
}

/** Asked before one is reserved, and by the driver before one is taken over. */
export function mayBeWarm(asked: Asked): boolean {
  return Object.entries(rules).every(([field, rule]) => rule === 'any' || isNone(asked[field as keyof Asked]))
}

function isNone(value: unknown): boolean {
  return value === undefined || value === false || (Array.isArray(value) && value.length === 0)
}
