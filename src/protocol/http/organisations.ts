import { z } from 'zod'
import { organisationStatuses } from '../organisation.ts'
import { milliTime } from './common.ts'
import { at, ids, showExample } from './examples.ts'

const number = (description: string) => z.number().nullable().optional().describe(description)

/** Bounds are checked by the service, which names the field. */
const limitFields = {
  runningSandboxesMax: number('Sandboxes that run at a time'),
  sandboxesMax: number('Sandboxes that are not stopped'),
  memoryMbMax: number('MiB of memory of those that run, together'),
  cpuCountMax: number('CPUs of those that run, together'),
  diskMbMax: number('MiB of disk: sizes of sandboxes and volumes, and what checkpoints hold'),
  checkpointsMax: number('Checkpoints of clients'),
  sessionsMax: number('Sessions that have not ended'),
  eventStreamsMax: number('Open event streams'),
  socketsMax: number('Open WebSockets'),
  buildsAtOnce: number('Builds of images at a time'),
  startsAtOnce: number('Boots, wakes, dumps and restores at a time'),
  requestsPerSecond: number('Requests each second, of all its keys'),
  requestsPerSecondPerKey: number('Requests each second, of one key'),
  diskBytesPerSecondMax: number(
    'Bytes that its sandboxes together read of their disks each second, and likewise write',
  ),
  networkBytesPerSecondMax: number('Bytes that its sandboxes together send each second, and likewise receive'),
  weight: number('Its share of what is scarce, from 1 to 1000'),
  webhooksMax: number('Destinations of webhooks'),
  keysMax: number('API keys'),
  budgetUsdPerMonth: number('USD of a calendar month (UTC); `null`: none'),
}

const setLimits = z.strictObject(limitFields).meta({ id: 'OrganisationLimits' })

const name = z.string().describe('1 to 128 characters, for people')

export const createOrganisation = z.object({
  name,
  limits: setLimits.optional().describe('Those that differ from the defaults of the installation'),
})
showExample(createOrganisation, { name: 'Team Reef', limits: { runningSandboxesMax: 20 } })

export const updateOrganisation = z.object({
  name: name.optional(),
  limits: setLimits
    .optional()
    .describe('`null` is the default of the installation again; those that are left out stay'),
})
showExample(updateOrganisation, { limits: { runningSandboxesMax: 40, memoryMbMax: null } })

export const suspendOrganisation = z.object({
  reason: z.string().max(1000).optional().describe('Told to those whose calls are refused'),
})
showExample(suspendOrganisation, { reason: 'the invoice is open' })

export const listOrganisationsQuery = z.object({
  limit: z.coerce.number().int().min(1).max(1000).optional().describe('Organisations of a page; default 1000'),
  cursor: z.string().optional().describe('`X-Next-Cursor` of the page before'),
})

const organisationUse = z.object({
  runningSandboxes: z.int().describe('Sandboxes that run or start'),
  memoryMB: z.int().describe('MiB of memory of these, together'),
  cpuCount: z.number().describe('CPUs of these, together'),
  sandboxes: z.int().describe('Sandboxes that are not stopped'),
  checkpoints: z.int().describe('Checkpoints, those of images too'),
  sessions: z.int().describe('Sessions that have not ended'),
  volumes: z.int().describe('Volumes'),
  images: z.int().describe('Images'),
  keys: z.int().describe('API keys'),
})

export const organisation = z
  .object({
    id: z.string().describe('Id of the organisation, `org_…`'),
    name: z.string().describe('Its name'),
    isDefault: z.boolean().describe('Whether it is the one of a fresh installation, which cannot be deleted'),
    status: z.enum(organisationStatuses).describe('`suspended`: its calls are refused and nothing of it runs'),
    suspendedReason: z.string().optional().describe('Why it is suspended'),
    limits: setLimits.describe('Those that differ from the defaults of the installation'),
    effectiveLimits: setLimits.describe('All that are in force'),
    usage: organisationUse.optional().describe('What it has at this moment; in the answer about one organisation'),
    createdAt: milliTime.describe('When it was made'),
  })
  .meta({
    id: 'Organisation',
    examples: [
      {
        ...{ id: ids.org, name: 'Team Reef', isDefault: false, status: 'active', createdAt: at.millisecond },
        ...{ limits: {}, effectiveLimits: { runningSandboxesMax: 200, weight: 100 } },
      },
    ],
  })

export const ownLimits = z
  .object({
    limits: setLimits.describe('What the organisation may have and do'),
    usage: organisationUse.describe('What it has at this moment'),
  })
  .meta({
    id: 'OwnLimits',
    examples: [
      {
        limits: { runningSandboxesMax: 200, weight: 100 },
        usage: {
          ...{ runningSandboxes: 1, memoryMB: 1024, cpuCount: 1, sandboxes: 2, checkpoints: 0, sessions: 0 },
          ...{ volumes: 0, images: 0, keys: 1 },
        },
      },
    ],
  })
