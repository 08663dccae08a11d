import { ServiceError } from '../../errors.ts'
import type { Egress, PreparedEgress } from './egress.ts'

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
