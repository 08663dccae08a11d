/** Who has asked for what: a chain of entries for each organisation, and one of the operator. */
export {
  actorOf,
  Audit,
  type AuditHead,
  type AuditLimits,
  type AuditQuery,
  type AuditStore,
  defaultAuditLimits,
  type NewAuditEntry,
} from './audit.ts'
export { redactText, redactValue } from './redact.ts'
