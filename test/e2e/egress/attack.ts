import assert from 'node:assert/strict'
import type { Seen, SeenRequest } from './journal.ts'
import type { EgressWorld } from './world.ts'

/** An attempt to get past the rules, or at a value, from inside. */
export interface Attack {
  name: string
  /** `listed`: names of a list alone; `open`: all, with a secret. Default: `listed`. */
  from?: 'listed' | 'open'
  /** A program with all of `probe.py`, that prints how its attempts ended, a line each. */
  does: string | ((world: EgressWorld) => string)
  /** How each of them must end; the last is that of all the others too. */
  ends: RegExp | readonly RegExp[]
  /** What must hold of what the world outside saw, beside what always must. */
  holds?: (seen: Seen[], world: EgressWorld) => void
}

/** A reset, or a TLS alert, or an answer that says which rule: what a refusal looks like inside. */
export const refused =
  /^(reset|closed|alert \d+|.*alert access denied.*|.*unexpected eof.*|HTTP\/1\.1 (400|403|405|421)\b.*|(400|403|405|421)|unreachable|refused|no such name)/

export const httpRefused = /^(HTTP\/1\.1 )?(400|403|405|421|501)\b|^closed$|^reset$/

/** What holds of all that a sandbox with a list does: the attacker's and the private address have heard nothing. */
export function assertKept(seen: readonly Seen[], world: EgressWorld): void {
  for (const entry of seen) {
    if (entry.kind !== 'tcp') continue
    assert.ok(entry.address !== world.evil && entry.address !== world.private, JSON.stringify(entry))
  }
}

/** A value has gone to its host alone, over TLS to it. */
export function assertOnlyTo(seen: readonly Seen[], value: string, host: string): void {
  for (const entry of seen) {
    if (!JSON.stringify(entry).includes(value)) continue
    const { isTls, sni } = entry as SeenRequest
    assert.ok(
      entry.kind === 'http' && isTls && sni === host && entry.host.toLowerCase() === host,
      `the value went to ${JSON.stringify(entry)}`,
    )
  }
}

export function requests(seen: readonly Seen[]): SeenRequest[] {
  return seen.filter((entry) => entry.kind === 'http')
}

export function questions(seen: readonly Seen[]): string[] {
  return seen.flatMap((entry) => (entry.kind === 'dns' ? [entry.name.toLowerCase()] : []))
}

/** Nobody outside was asked for a path with this word. */
export function unseen(word: string): (seen: Seen[]) => void {
  return (seen) =>
    assert.deepEqual(
      requests(seen).filter((request) => request.path.includes(word)),
      [],
    )
}

/** No name with this word was asked for outside. */
export function unasked(word: string): (seen: Seen[]) => void {
  return (seen) =>
    assert.deepEqual(
      questions(seen).filter((name) => name.includes(word)),
      [],
    )
}
