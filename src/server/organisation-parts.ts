import { ServiceError } from '../errors.ts'
import type { Images } from '../image/index.ts'
import type { OrganisationPart } from '../organisation/index.ts'
import type { RunningSandboxService } from '../sandbox/index.ts'
import type { Sessions } from '../session/index.ts'
import type { Webhooks } from '../webhook/index.ts'

interface Services {
  sessions: Pick<Sessions, 'rest' | 'takeUp' | 'removeAll'>
  images: Pick<Images, 'cancelBuilds' | 'removeAll'>
  sandboxes: Pick<RunningSandboxService, 'hibernateAll' | 'removeAll'>
  webhooks: Pick<Webhooks, 'forget'>
}

/** What has things of organisations. Sessions and builds let go of their sandboxes first, or they would start others. */
export function organisationParts({ sessions, images, sandboxes, webhooks }: Services): OrganisationPart[] {
  return [
    {
      name: 'sessions',
      async suspend(orgId) {
        await sessions.rest(orgId)
        return true
      },
      resume: (orgId) => sessions.takeUp(orgId),
      remove: (orgId) => sessions.removeAll(orgId),
    },
    {
      name: 'images',
      async suspend(orgId) {
        await images.cancelBuilds(orgId, new ServiceError('organisation_suspended', 'the organisation is suspended'))
        return true
      },
      remove: (orgId) => images.removeAll(orgId),
    },
    {
      name: 'sandboxes',
      suspend: (orgId) => sandboxes.hibernateAll(orgId),
      remove: (orgId) => sandboxes.removeAll(orgId),
    },
    // Their rows go with all others, and would come back by what looks for news.
    { name: 'webhooks', remove: (orgId) => webhooks.forget(orgId) },
  ]
}
