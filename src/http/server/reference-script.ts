import { parentPort } from 'node:worker_threads'
import { gzipSync } from 'node:zlib'
import scalar from '@scalar/fastify-api-reference'
import Fastify from 'fastify'

// The package exports only a plugin, so an app that never listens is asked for the script.
const app = Fastify()
await app.register(scalar, { routePrefix: '/docs', configuration: { url: '/openapi.json' } })
const { rawPayload } = await app.inject('/docs/js/scalar.js')
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a message port has no origin
parentPort?.postMessage(gzipSync(rawPayload))
