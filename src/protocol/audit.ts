import { hash } from 'node:crypto'

/** What the chain binds of an entry. */
export interface AuditFacts {
  /** The organisation; empty: the operator's own chain. */
  orgId: string
  /** From 1 on, without gaps. */
  number: number
  /** ISO 8601 with milliseconds. */
  ts: string
  actorType: string
  actorId: string | null
  address: string | null
  operation: string
  /** The call that it is of: an entry of its failure has the same. */
  request: string
  subject: Record<string, unknown>
  /** The status of a call that was refused or has failed; null of one that was let in. */
  status: number | null
}

/** The hash before the first entry. */
export const auditRoot = '0'.repeat(64)

/** SHA-256 in hex of the hash before and the facts as JSON with sorted keys. */
export function auditHash(previous: string, facts: AuditFacts): string {
  const { orgId, number, ts, actorType, actorId, address, operation, request, subject, status } = facts
  const bound = { orgId, number, ts, actorType, actorId, address, operation, request, subject, status }
  return hash('sha256', `${previous}\n${JSON.stringify(sorted(bound))}`)
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).filter(([, item]) => item !== undefined)
  return Object.fromEntries(
    entries.toSorted(([one], [other]) => (one < other ? -1 : 1)).map(([key, item]) => [key, sorted(item)]),
  )
}

export interface ChainedEntry extends AuditFacts {
  previousHash: string
  hash: string
}

/**
 * Follows a chain, entry by entry. Each fault is told once, in words: what was altered, removed, inserted or moved. `end` is compared with a head
 * that was kept elsewhere, which alone shows that the end was cut off.
 */
export class AuditVerifier {
  #last: { number: number; hash: string } | undefined
  readonly faults: string[] = []
  count = 0

  take(entry: ChainedEntry): void {
    const { number, previousHash, hash: told } = entry
    this.count++
    const last = this.#last
    if (last !== undefined) {
      if (number > last.number + 1) this.faults.push(`entries ${last.number + 1} to ${number - 1} are missing`)
      else if (number <= last.number)
        this.faults.push(`entry ${number} stands behind entry ${last.number}: it was inserted or moved`)
      else if (previousHash !== last.hash) this.faults.push(`entry ${number} does not follow from entry ${last.number}`)
    } else if (number === 1 && previousHash !== auditRoot) this.faults.push('entry 1 does not begin the chain')
    if (auditHash(previousHash, entry) !== told) this.faults.push(`entry ${number} was altered`)
    this.#last = { number, hash: told }
  }

  get head(): { number: number; hash: string } | undefined {
    return this.#last
  }
}
