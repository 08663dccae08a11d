/**
 * Organisations and their keys: who may call, what each key may do, and what an organisation may have. `Organisations` holds all of them in
 * memory, since one server writes them, so that each call is admitted without a read.
 */
export { Keys, type AddKey, type KeyMaker, type KnownKey } from './keys.ts'
export { defaultOrganisationLimits, organisationLimitBounds, type OrganisationLimits } from './limits.ts'
export {
  statusOf,
  type ApiKey,
  type Organisation,
  type OrganisationStatus,
  type OrganisationUse,
} from './organisation.ts'
export { Organisations, type OrganisationEvent } from './organisations.ts'
export { Operator, operatorKeyPrefix } from './operator.ts'
export { OrganisationReconciler, type OrganisationPart } from './reconciler.ts'
export { scopes, type Scope } from './scopes.ts'
export type { OrganisationChange, OrganisationStore } from './store.ts'
