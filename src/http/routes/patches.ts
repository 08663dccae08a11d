import { z } from 'zod'
import type { CreatePatch, Patch } from '../../sandbox/index.ts'
import { checkpoints as wire } from '../../protocol/http/index.ts'
import { routesOf } from '../server/route.ts'
import { seconds } from '../server/time.ts'
import { defined } from '../../lib/defined.ts'

const route = routesOf('Patches', 'sandbox')

export const patchRoutes = [
  route('POST', '/api/sandboxes/checkpoints/:checkpointId/patches', {
    id: 'createPatch',
    lenient: true,
    summary: 'Attach a script to a checkpoint',
    description:
      'It runs as root with bash in each sandbox started from the checkpoint (`on_wake`), with `on_resume` also at each wake ' +
      'from hibernation.',
    body: wire.createPatch,
    creates: true,
    answers: { 201: { description: 'Attached', body: wire.createdPatch } },
    errors: ['too_large'],
    async handle({ orgId, params, body, creation, deps }) {
      const patch = await deps.sandboxes.patches.create(orgId, params.checkpointId, patchInput(body), { creation })
      return { statusCode: 201, body: { patch: patchBody(patch) } }
    },
  }),
  route('GET', '/api/sandboxes/checkpoints/:checkpointId/patches', {
    id: 'listPatches',
    lenient: true,
    summary: 'List the patches of a checkpoint',
    answers: { 200: { description: 'In sequence order', body: z.array(wire.patch) } },
    answer: async ({ orgId, params, deps }) =>
      (await deps.sandboxes.patches.list(orgId, params.checkpointId)).map(patchBody),
  }),
  route('DELETE', '/api/sandboxes/checkpoints/:checkpointId/patches/:patchId', {
    id: 'deletePatch',
    lenient: true,
    summary: 'Detach a patch',
    answers: { 204: { description: 'It is gone; its number is never used again' } },
    answer: ({ orgId, params, deps }) => deps.sandboxes.patches.delete(orgId, params.checkpointId, params.patchId),
  }),
]

export function patchInput({ script, strategy, description }: z.output<typeof wire.createPatch>): CreatePatch {
  return { script, strategy, ...defined({ description }) }
}

export function patchBody(patch: Patch): z.output<typeof wire.patch> {
  const { id, checkpointId, script, description, strategy, sequence } = patch
  return { id, checkpointId, script, description, strategy, sequence, createdAt: seconds(patch.createdAt) }
}
