import { readFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import { docsAnswer } from '../server/docs-pages.ts'
import { referencePage, referencePolicy, referenceScript } from '../server/reference-page.ts'
import { routesOf } from '../server/route.ts'

const route = routesOf('Operations', 'any')
const pageAnswers = {
  200: { description: 'The page', content: 'text/html', example: '<!doctype html>…' },
  304: { description: 'Not modified' },
}

export const docsRoutes = [
  route('GET', '/openapi.json', {
    id: 'getOpenApi',
    summary: 'This reference as OpenAPI 3.1',
    auth: 'none',
    answers: {
      200: {
        description: 'The document',
        body: z
          .looseObject({ openapi: z.string().describe('Version of OpenAPI') })
          .meta({ examples: [{ openapi: '3.1.0' }] }),
      },
    },
    answer: async ({ openapi }) => openapi,
  }),
  route('GET', '/docs', {
    id: 'getDocs',
    lenient: true,
    summary: 'The documentation as pages',
    auth: 'none',
    answers: pageAnswers,
    errors: ['not_found'],
    handle: async ({ request, deps }) =>
      await docsAnswer(deps.config.docsDir, { path: '/docs', headers: request.headers }),
  }),
  route('GET', '/docs/*', {
    id: 'getDocsPage',
    lenient: true,
    summary: 'A page of the documentation, or a file that the pages load',
    description:
      '`page` is the path of a file in `docs/` without `.md`. A browser gets a page also where there is none.',
    auth: 'none',
    answers: { ...pageAnswers, 308: { description: 'The page is at another address' } },
    errors: ['not_found'],
    async handle({ params, request, deps }) {
      const { '*': page = '' } = params as Record<string, string>
      return await docsAnswer(deps.config.docsDir, { path: `/docs/${page}`, headers: request.headers })
    },
  }),
  route('GET', '/docs/api', {
    id: 'getReference',
    lenient: true,
    summary: 'This reference as a page',
    auth: 'none',
    answers: { 200: { description: 'The page', content: 'text/html', example: '<!doctype html>…' } },
    async handle() {
      const headers = {
        'content-type': 'text/html; charset=utf-8',
        'content-security-policy': referencePolicy,
        'x-content-type-options': 'nosniff',
      }
      return { statusCode: 200, body: referencePage, headers }
    },
  }),
  route('GET', '/sdk.tgz', {
    id: 'getSdk',
    summary: 'The package of the SDK for this version of the server',
    description: '`npm install http://SERVER/sdk.tgz` installs `atoll-sdk`.',
    auth: 'none',
    answers: { 200: { description: 'The package', content: 'application/gzip', example: '\u001f\u008b…' } },
    errors: ['not_found'],
    async handle({ deps }) {
      const { sdkPackage } = deps.config
      const body = await readFile(sdkPackage).catch((error: unknown) => {
        const message =
          'this server has no package of the SDK: `npm run setup` makes it, and `npm run sdk:pack` that alone'
        throw new ServiceError('not_found', message, { cause: error })
      })
      const headers = {
        'content-type': 'application/gzip',
        'content-disposition': `attachment; filename="${basename(sdkPackage)}"`,
        'cache-control': 'no-cache',
        'x-content-type-options': 'nosniff',
      }
      return { statusCode: 200, body, headers }
    },
  }),
  route('GET', '/docs/api/scalar.js', {
    id: 'getReferenceScript',
    lenient: true,
    summary: 'The script of the reference page',
    auth: 'none',
    answers: {
      200: { description: 'The script', content: 'text/javascript', example: '(function(){…' },
      304: { description: 'Not modified' },
    },
    async handle({ request }) {
      const { gzip, etag } = await referenceScript()
      const headers = { etag, 'cache-control': 'no-cache', vary: 'accept-encoding' }
      if (request.headers['if-none-match'] === etag) return { statusCode: 304, headers }
      const isCompressed = /\bgzip\b/.test(request.headers['accept-encoding'] ?? '')
      const body = isCompressed ? gzip : await promisify(gunzip)(gzip)
      return {
        statusCode: 200,
        body,
        headers: {
          ...headers,
          ...defined({ 'content-encoding': isCompressed ? 'gzip' : undefined }),
          'content-type': 'text/javascript; charset=utf-8',
          'x-content-type-options': 'nosniff',
        },
      }
    },
  }),
]
