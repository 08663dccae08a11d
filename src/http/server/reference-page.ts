import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { scriptedPolicy } from '../../lib/html.ts'

// Scalar creates style elements at run time, hence 'unsafe-inline' for styles. Its scripts, and its requests, stay on this origin.
export const referencePolicy = scriptedPolicy("'unsafe-inline'")

const configuration = {
  url: '/openapi.json',
  telemetry: false,
  withDefaultFonts: false,
  proxyUrl: '',
  agent: { disabled: true },
  mcp: { disabled: true },
  hideClientButton: true,
  showDeveloperTools: 'never',
}

/** The configuration is in an attribute, since the policy forbids inline scripts. */
export const referencePage = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>Atoll API</title></head>
<body><div id="api-reference" data-url="/openapi.json" data-configuration='${JSON.stringify(configuration)}'></div>
<script src="/docs/api/scalar.js"></script></body></html>
`

/** Loading takes a second. */
const loadMs = 60_000

let script: ReturnType<typeof loadScript> | undefined

/**
 * The script of the page. Scalar's package holds it as a string of 5 MB in a module, which Node never unloads: a worker thread
 * loads the module, so the server's heap keeps the compressed script alone.
 */
export function referenceScript(): ReturnType<typeof loadScript> {
  script ??= loadScript().catch((error: unknown) => {
    script = undefined
    throw error
  })
  return script
}

async function loadScript(): Promise<{ gzip: Buffer; etag: string }> {
  const worker = new Worker(new URL('./reference-script.ts', import.meta.url))
  const [bytes] = (await once(worker, 'message', { signal: AbortSignal.timeout(loadMs) }).finally(() => {
    void worker.terminate()
  })) as [Uint8Array]
  const gzip = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return { gzip, etag: `"${createHash('sha256').update(gzip).digest('base64url')}"` }
}
