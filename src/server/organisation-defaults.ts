import { defaultHttpLimits } from '../http/server/config.ts'
import { defaultImageLimits } from '../image/index.ts'
import { defaultOrganisationLimits, type OrganisationLimits, organisationLimitBounds } from '../organisation/index.ts'
import { defaultSandboxLimits } from '../sandbox/index.ts'
import type { Config } from './config.ts'

const [, requestsPerSecondMost] = organisationLimitBounds.requestsPerSecond

/**
 * What an organisation may have that its row does not tell: `ATOLL_LIMITS.organisation`, else the older settings of what one organisation may
 * have, else what this version comes with. 0 requests per second are as many as a key wants.
 */
export function organisationDefaults(config: Config): Partial<OrganisationLimits> {
  const { runningSandboxesMax, limits } = config
  const { startsAtOnce, diskMbPerOrganisationMax: diskMbMax } = { ...defaultSandboxLimits, ...limits.sandbox }
  const { buildsAtOnce } = { ...defaultImageLimits, ...limits.image }
  const { eventStreamsPerOrganisationMax: eventStreamsMax, socketsPerOrganisationMax: socketsMax } = {
    ...defaultHttpLimits,
    ...limits.http,
  }
  const { requestsPerSecond: requestsPerSecondPerKey = requestsPerSecondMost } = config
  return {
    ...{ runningSandboxesMax, startsAtOnce, diskMbMax, buildsAtOnce, eventStreamsMax, socketsMax },
    requestsPerSecond: Math.max(defaultOrganisationLimits.requestsPerSecond, requestsPerSecondPerKey),
    requestsPerSecondPerKey,
    ...limits.organisation,
  }
}
