import { z } from 'zod'
import type { ReadableImage } from '../../image/index.ts'
import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import { images as wire } from '../../protocol/http/index.ts'
import { goneSignal } from '../server/build-stream.ts'
import { noContent, type Route, routesOf } from '../server/route.ts'
import { seconds } from '../server/time.ts'
import { buildErrors } from './images.ts'
import { sendList } from '../server/json-list.ts'

const route = routesOf('Templates', 'image')

/** A template is an image with a name. The SDK asks for it below the URL that it is given, with and without `/api`. */
export const templateRoutes = (['/api', ''] as const).flatMap(routesBelow)

function routesBelow(prefix: '/api' | ''): Route[] {
  const suffix = prefix === '' ? 'AtRoot' : ''
  return [
    route('POST', `${prefix}/templates`, {
      id: `createTemplate${suffix}`,
      naming: 'kept',
      lenient: true,
      summary: 'Build an image from a Dockerfile',
      description:
        'Waits for the build. The text is what the Dockerfile reference says; `COPY` and `ADD` read the files of `context`. CMD and ENTRYPOINT are kept ' +
        'and not run.',
      body: wire.createTemplate,
      creates: true,
      answers: { 201: { description: 'It is ready', body: wire.template } },
      errors: [...buildErrors, 'not_found'],
      async handle(call) {
        const { orgId, body, creation, deps } = call
        const { name, dockerfile, context, tag, replace } = body
        const manifest = { dockerfile, ...defined({ context }), template: { tag } }
        const image = await deps.images.create(orgId, name, manifest, {
          ...{ signal: goneSignal(call), creation },
          ...defined({ replace }),
        })
        return { statusCode: 201, body: templateBody(image) }
      },
    }),
    route('GET', `${prefix}/templates`, {
      id: `listTemplates${suffix}`,
      lenient: true,
      summary: 'List own and public images with a name',
      answers: { 200: { description: 'Own ones first', body: z.array(wire.template) } },
      handle: (call) => sendList(call, call.deps.images.listUsable(call.orgId), templateBody),
    }),
    route('GET', `${prefix}/templates/:name`, {
      id: `getTemplate${suffix}`,
      lenient: true,
      summary: 'Read a template',
      answers: { 200: { description: 'The template', body: wire.template } },
      answer: async ({ orgId, params, deps }) => templateBody(await deps.images.getReadable(orgId, params.name)),
    }),
    route('DELETE', `${prefix}/templates/:name`, {
      id: `deleteTemplate${suffix}`,
      lenient: true,
      summary: 'Delete a template',
      description: 'Sandboxes from it run on. A public one is deleted by its owner alone.',
      answers: { 204: { description: 'It is gone' } },
      errors: ['forbidden'],
      async handle({ orgId, params, deps }) {
        const image = await deps.images.getReadable(orgId, params.name)
        if (image.orgId !== orgId)
          throw new ServiceError('forbidden', `template ${params.name} belongs to another organisation`)
        await deps.images.delete(orgId, image.id)
        return noContent
      },
    }),
  ]
}

const statuses = { defined: 'processing', building: 'building', ready: 'ready', failed: 'error' } as const

function templateBody(image: ReadableImage): z.output<typeof wire.template> {
  const { id, orgId, name = id, manifest, status, isPublic, createdAt } = image
  const { tag = 'latest', dockerfile = manifest.dockerfile ?? '' } = manifest.template ?? {}
  return {
    ...{ id, templateID: id, orgId, name, tag, dockerfile, isPublic },
    status: statuses[status],
    templateType: dockerfile === '' ? 'sandbox' : 'dockerfile',
    createdAt: seconds(createdAt),
  }
}
