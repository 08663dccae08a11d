import type { scopes } from '../../src/protocol/organisation.ts'

type Scope = (typeof scopes)[number]

/** What a key for the examples of a page may do, where the reader's own key may too. */
const usual = [
  'sandbox:read',
  'sandbox:write',
  'sandbox:exec',
  'session:read',
  'session:write',
  'image',
  'volume',
  'preview',
  'events',
  'usage',
] as const satisfies Scope[]

/** Pages whose examples need more, by their file. */
const further: Readonly<Record<string, readonly Scope[]>> = {
  'use/organisations.md': ['keys'],
  'use/audit.md': ['audit'],
  'use/webhooks.md': ['webhook'],
  'use/secrets.md': ['secret'],
  'use/egress.md': ['egress'],
}

/** Scopes of a key that the page of this file makes. */
export function scopesOf(file: string): readonly Scope[] {
  return [...usual, ...(further[file] ?? [])]
}
