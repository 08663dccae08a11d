/**
 * Secret stores: named sets of secrets of an organisation, whose values never enter a sandbox. A sandbox has placeholders (`shape.ts`), in whose
 * place the host sends the values to the hosts that each secret names. Values are sealed by a ring of keys (`key-ring.ts`).
 */
export type { Chain, ChainOf } from './chain.ts'
export type { ChangeListener, Refresh, Refreshed, StoreChanged } from './changes.ts'
export type { SecretInput } from './input.ts'
export { KeyFile, keyFileName } from './key-file.ts'
export { KeyRing } from './key-ring.ts'
export { defaultSecretLimits, type SecretLimits } from './limits.ts'
export type { Rotation } from './rotation.ts'
export type { ChainSecret, Place, ResolvedSecret, SealedSecret, Secret, Signing, Store } from './secret.ts'
export { readKeys, type SealingKey } from './sealing-key.ts'
export { Secrets, type NewStore } from './secrets.ts'
export type { ChainQuery, SealedRow, SecretStorePort, StoreChange } from './store.ts'
