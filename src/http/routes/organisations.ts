import { z } from 'zod'
import { statusOf, type Organisation } from '../../organisation/index.ts'
import { defined } from '../../lib/defined.ts'
import { organisations as wire } from '../../protocol/http/index.ts'
import type { HttpDeps } from '../server/config.ts'
import { nextPageHeader, pageAnswer, routesOf } from '../server/route.ts'
import { milliseconds } from '../server/time.ts'

const route = routesOf('Organisations', 'any')
const path = '/api/orgs/:orgId'
const auth = 'operator'

/** Calls of the operator. */
export const organisationRoutes = [
  route('POST', '/api/orgs', {
    id: 'createOrganisation',
    auth,
    summary: 'Make an organisation',
    description: 'It has no key yet: `POST /api/orgs/{orgId}/keys`.',
    body: wire.createOrganisation,
    creates: true,
    answers: { 201: { description: 'The organisation', body: wire.organisation } },
    errors: ['quota_exceeded'],
    async handle({ body, creation, deps }) {
      const input = { name: body.name, ...defined({ limits: valuesOf(body.limits) }) }
      const made = await deps.organisations.create(input, { creation })
      return { statusCode: 201, body: organisationBody(made, deps) }
    },
  }),
  route('GET', '/api/orgs', {
    id: 'listOrganisations',
    auth,
    summary: 'List organisations',
    query: wire.listOrganisationsQuery,
    answers: { 200: { description: 'By name', body: z.array(wire.organisation), headers: nextPageHeader } },
    async handle({ query, deps }) {
      const { limit = 1000, cursor } = query
      const page = deps.organisations.page({ limit, ...defined({ cursor }) })
      return pageAnswer(page, (organisation) => organisationBody(organisation, deps))
    },
  }),
  route('GET', path, {
    id: 'getOrganisation',
    auth,
    summary: 'Read an organisation',
    answers: { 200: { description: 'The organisation', body: wire.organisation } },
    async answer({ params, deps }) {
      const organisation = deps.organisations.get(params.orgId)
      return { ...organisationBody(organisation, deps), usage: await useOf(organisation.id, deps) }
    },
  }),
  route('PATCH', path, {
    id: 'updateOrganisation',
    auth,
    summary: 'Change the name and the limits of an organisation',
    description: 'A limit below what is there ends nothing: it refuses what comes.',
    body: wire.updateOrganisation,
    answers: { 200: { description: 'The organisation', body: wire.organisation } },
    errors: ['conflict'],
    async answer({ params, body, deps }) {
      const { name, limits } = body
      const change = { ...defined({ name }), ...(limits === undefined ? {} : { limits: clearedOf(limits) }) }
      return organisationBody(await deps.organisations.update(params.orgId, change), deps)
    },
  }),
  route('DELETE', path, {
    id: 'deleteOrganisation',
    auth,
    summary: 'Delete an organisation with all that it has',
    description:
      'Answers at once: its calls are refused from here on, and what it has goes in the background, also over restarts. When all is gone it is 404.',
    answers: { 202: { description: 'It is being deleted', body: wire.organisation } },
    errors: ['conflict'],
    async handle({ params, deps }) {
      return { statusCode: 202, body: organisationBody(await deps.organisations.beginDeletion(params.orgId), deps) }
    },
  }),
  route('POST', `${path}/suspend`, {
    id: 'suspendOrganisation',
    auth,
    summary: 'Suspend an organisation',
    description: 'Its calls are refused, its streams end, and what runs hibernates. A repeat changes the reason.',
    body: wire.suspendOrganisation,
    answers: { 200: { description: 'The organisation', body: wire.organisation } },
    errors: ['conflict'],
    answer: async ({ params, body, deps }) =>
      organisationBody(await deps.organisations.suspend(params.orgId, body.reason), deps),
  }),
  route('POST', `${path}/resume`, {
    id: 'resumeOrganisation',
    auth,
    summary: 'End the suspension of an organisation',
    description: 'What hibernates wakes when it is used.',
    answers: { 200: { description: 'The organisation', body: wire.organisation } },
    errors: ['conflict'],
    answer: async ({ params, deps }) => organisationBody(await deps.organisations.resume(params.orgId), deps),
  }),
]

/** What the caller's own organisation may have. */
export const ownLimitsRoute = route('GET', '/api/limits', {
  id: 'getLimits',
  summary: 'Read what the organisation may have, and what it has',
  description: 'A request beyond a limit that frees itself is 429 `rate_limited`, beyond another 403 `quota_exceeded`.',
  answers: { 200: { description: 'All limits in force', body: wire.ownLimits } },
  answer: async ({ orgId, deps }) => ({
    limits: deps.organisations.limitsOf(orgId),
    usage: await useOf(orgId, deps),
  }),
})

async function useOf(orgId: string, { organisations }: Pick<HttpDeps, 'organisations'>) {
  const { memoryMb: memoryMB, ...use } = await organisations.use(orgId)
  return { ...use, memoryMB }
}

type Limits = NonNullable<z.output<typeof wire.createOrganisation>['limits']>

/** In a new organisation what is `null` is as if it were left out. */
function valuesOf(limits: Limits | undefined) {
  return (
    limits && Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== null && value !== undefined))
  )
}

/** Of a change: `null` is the default of the installation again. */
function clearedOf(limits: Limits) {
  return Object.fromEntries(Object.entries(limits).map(([limit, value]) => [limit, value ?? undefined]))
}

function organisationBody(
  organisation: Organisation,
  { organisations }: Pick<HttpDeps, 'organisations'>,
): z.output<typeof wire.organisation> {
  const { id, name, isDefault, limits, suspendedReason, createdAt } = organisation
  return {
    ...{ id, name, isDefault, limits, status: statusOf(organisation), createdAt: milliseconds(createdAt) },
    ...defined({ suspendedReason }),
    effectiveLimits: organisations.limitsOf(id),
  }
}
