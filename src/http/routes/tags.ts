import type { Sandbox } from '../../sandbox/index.ts'
import { sandboxes as wire } from '../../protocol/http/index.ts'
import type { Answer } from '../server/route.ts'
import { route } from '../server/route.ts'
import { seconds } from '../server/time.ts'

const tag = 'Tags'

export const tagRoutes = [
  route({
    method: 'GET',
    path: '/api/sandboxes/:id/tags',
    tag,
    summary: 'Read the tags of a sandbox',
    auth: 'key',
    answers: { 200: { description: 'Its tags', body: wire.tags } },
    errors: ['not_found'],
    async handle({ orgId, params, deps }) {
      return tagsAnswer(await deps.sandboxes.get(orgId, params.id))
    },
  }),
  route({
    method: 'PUT',
    path: '/api/sandboxes/:id/tags',
    tag,
    summary: 'Replace the tags of a sandbox',
    description:
      'The body is the bare map: at most 50 keys of 1 to 128 characters `A–Z a–z 0–9 _ . - :`, values up to 256.',
    auth: 'key',
    body: wire.putTags,
    answers: { 200: { description: 'Its tags', body: wire.tags } },
    errors: ['not_found', 'sandbox_stopped'],
    async handle({ orgId, params, body, deps }) {
      return tagsAnswer(await deps.sandboxes.setTags(orgId, params.id, body))
    },
  }),
  route({
    method: 'GET',
    path: '/api/tags',
    tag,
    summary: 'List the tag keys in use',
    auth: 'key',
    answers: { 200: { description: 'Keys of all sandboxes that are not stopped', body: wire.tagKeys } },
    async handle({ orgId, deps }) {
      return { statusCode: 200, body: { keys: await deps.sandboxes.tagKeys(orgId) } }
    },
  }),
]

function tagsAnswer(sandbox: Sandbox): Answer {
  return { statusCode: 200, body: { tags: sandbox.tags, tagsLastUpdatedAt: seconds(sandbox.tagsUpdatedAt) } }
}
