import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import type { Egress, EgressInput, PreparedEgress } from './egress.ts'

/** Splits what a creation says of egress from the rest. */
export function takeEgress<Input extends EgressInput>(
  input: Input,
): { given: EgressInput; rest: Omit<Input, keyof EgressInput> } {
  const { secretStore, secrets, egress, egressAllowlist, secretAllowedHosts, ...rest } = input
  return { given: defined({ secretStore, secrets, egress, egressAllowlist, secretAllowedHosts }), rest }
}

/** `Egress.prepare`; where nothing holds egress, what asks for it is refused. */
export async function prepareEgress(
  held: Pick<Egress, 'prepare'> | undefined,
  ...[orgId, input, ...rest]: Parameters<Egress['prepare']>
): Promise<PreparedEgress> {
  if (held !== undefined) return await held.prepare(orgId, input, ...rest)
  if (Object.keys(input).length > 0)
    throw new ServiceError('unavailable', 'this server cannot hold the egress of sandboxes')
  return { envs: {} }
}
