import { readFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { pagePolicy } from '../../lib/html.ts'
import { defined } from '../../lib/defined.ts'
import { landingPage } from '../server/landing-page.ts'
import { referencePage, referencePolicy, referenceScript } from '../server/reference-page.ts'
import { type Route, routesOf } from '../server/route.ts'

const route = routesOf('Operations', 'any')
const html = 'text/html; charset=utf-8'
const pageHeaders = { 'content-type': html, 'content-security-policy': pagePolicy, 'x-content-type-options': 'nosniff' }
const addresses = z
  .object({
    name: z.literal('atoll').describe('Name of the service'),
    version: z.string().describe('Version of the server'),
    docs: z.string().describe('Path of the reference page'),
    openapi: z.string().describe('Path of this reference as OpenAPI'),
  })
  .meta({ examples: [{ name: 'atoll', version: '0.1.0', docs: '/docs', openapi: '/openapi.json' }] })

export const docsRoutes = [
  route('GET', '/', {
    id: 'getIndex',
    lenient: true,
    summary: 'Where to go from here',
    description: 'To a browser it is a page.',
    auth: 'none',
    answers: { 200: { description: 'Addresses', body: addresses } },
    async handle({ openapi, request, deps }) {
      const version = typeof openapi.info['version'] === 'string' ? openapi.info['version'] : ''
      if ((request.headers.accept ?? '').includes('text/html')) {
        const origin = deps.config.publicUrl ?? `${request.protocol}://${request.host}`
        const headers = { ...pageHeaders, vary: 'accept' }
        return { statusCode: 200, body: landingPage(version, origin), headers }
      }
      return {
        statusCode: 200,
        body: { name: 'atoll', version, docs: '/docs', openapi: '/openapi.json' },
      }
    },
  }),
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
  reference('/docs', 'getReference'),
  reference('/docs/', 'getReferenceFolder'),
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
  route('GET', '/docs/scalar.js', {
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

function reference(path: string, id: string): Route {
  return route('GET', path, {
    id,
    lenient: true,
    summary: 'This reference as a page',
    auth: 'none',
    answers: { 200: { description: 'The page', content: 'text/html', example: '<!doctype html>…' } },
    async handle() {
      const headers = { ...pageHeaders, 'content-security-policy': referencePolicy }
      return { statusCode: 200, body: referencePage, headers }
    },
  })
}
