import { defined } from '../../lib/defined.ts'
import { assertInput } from '../input.ts'
import type { InlineSecret } from '../ports/secret-source.ts'
import { hostRules, type PolicyInput, readHost } from './policy.ts'

/** What a creation says of egress and secrets. */
export interface EgressInput {
  /** Name of a store. */
  secretStore?: string | undefined
  secrets?: Readonly<Record<string, InlineSecret>> | undefined
  egress?: PolicyInput | undefined
  egressAllowlist?: string[] | undefined
  /** Narrows the hosts of secrets, by name. */
  secretAllowedHosts?: Record<string, string[]> | undefined
}

const hostsMax = 1000

/** Splits what a creation says of egress from the rest. */
export function takeEgress<Input extends EgressInput>(
  input: Input,
): { given: EgressInput; rest: Omit<Input, keyof EgressInput> } {
  const { secretStore, secrets, egress, egressAllowlist, secretAllowedHosts, ...rest } = input
  return { given: defined({ secretStore, secrets, egress, egressAllowlist, secretAllowedHosts }), rest }
}

export function unitedHosts(inherited: readonly string[] = [], given: readonly string[] = []): string[] | undefined {
  assertInput(given.length <= hostsMax, 'egressAllowlist', `must have at most ${hostsMax} hosts`)
  const hosts = hostRules(given, 'egressAllowlist').map(({ host = '' }) => host)
  const united = [...new Set([...inherited, ...hosts])]
  return united.length === 0 ? undefined : united
}

export function narrowed(
  inherited: Record<string, string[]> = {},
  given: Record<string, string[]> = {},
): Record<string, string[]> | undefined {
  const read = Object.entries(given).map(([name, hosts]) => {
    const field = `secretAllowedHosts.${name}`
    return [name, hosts.map((host, index) => readHost(host, `${field}[${index}]`))] as const
  })
  const all = { ...inherited, ...Object.fromEntries(read) }
  return Object.keys(all).length === 0 ? undefined : all
}
