import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readConfig } from './config.ts'
import { organisationDefaults } from './organisation-defaults.ts'

test('organisation defaults: settings of the installation are what is in force for an organisation', () => {
  const limits = {
    sandbox: { startsAtOnce: 5, diskMbPerOrganisationMax: 20_000 },
    image: { buildsAtOnce: 3 },
    http: { eventStreamsPerOrganisationMax: 7, socketsPerOrganisationMax: 9 },
  }
  const env = { ATOLL_REQUESTS_PER_SECOND: '30', ATOLL_RUNNING_SANDBOXES_MAX: '11' }
  const expected = {
    ...{ runningSandboxesMax: 11, startsAtOnce: 5, diskMbMax: 20_000, buildsAtOnce: 3 },
    ...{ eventStreamsMax: 7, socketsMax: 9, requestsPerSecond: 1000, requestsPerSecondPerKey: 30 },
  }
  assert.deepEqual(organisationDefaults(readConfig({ ...env, ATOLL_LIMITS: JSON.stringify(limits) })), expected)
  const organisation = { buildsAtOnce: 8, requestsPerSecondPerKey: 500 }
  const both = readConfig({ ...env, ATOLL_LIMITS: JSON.stringify({ ...limits, organisation }) })
  assert.deepEqual(organisationDefaults(both), { ...expected, ...organisation }, 'those of organisations win')
})

test('organisation defaults: 0 requests per second bound neither a key nor an organisation', () => {
  const { requestsPerSecond, requestsPerSecondPerKey } = organisationDefaults(
    readConfig({ ATOLL_REQUESTS_PER_SECOND: '0' }),
  )
  assert.deepEqual([requestsPerSecond, requestsPerSecondPerKey], [1_000_000, 1_000_000])
})
