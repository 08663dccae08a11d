import { randomBytes } from 'node:crypto'
import type { EventBus } from '../events/index.ts'
import type { Log } from '../lib/log.ts'
import { sha256 } from '../lib/secret.ts'
import type { Audit } from '../organisation/audit/index.ts'
import { createPreviewProxy } from '../preview/preview-proxy.ts'
import type { RunningSandboxService } from '../sandbox/index.ts'
import type { Store } from '../store/index.ts'
import type { Config } from './config.ts'

interface PreviewParts {
  store: Pick<Store, 'organisations'>
  sandboxes: Pick<RunningSandboxService, 'previews'>
  audit: Pick<Audit, 'visited'>
  bus: EventBus
  signingSecret: string
  log: Log
}

/** The proxy of previews; what is opened comes into the audit. */
export async function createPreviews(
  { previewUrl: { hostname, protocol, port }, apiHosts, trustProxy, apiKey, operatorKey }: Config,
  { store: { organisations }, sandboxes, audit, ...parts }: PreviewParts,
) {
  return createPreviewProxy({
    ...{ ...parts, previews: sandboxes.previews, previewHost: hostname, apiHosts, trustProxy },
    ...(protocol === 'https:' ? { edge: { port: Number(port) || 443 } } : {}),
    opened({ sandbox: { id, orgId }, port: opened }, request) {
      const address = request.socket.remoteAddress ?? null
      const subject = { id, port: opened, host: request.headers.host ?? '' }
      const entry = { orgId, ts: new Date(), operation: 'openPreview', subject, status: null, address }
      const by = { actorType: 'visitor', actorId: null, request: randomBytes(8).toString('hex') }
      audit.visited(`${id} ${opened} ${address}`, { ...entry, ...by })
    },
    // Those of an earlier start included: they are valid until others replace them.
    apiKeyHashes: [
      ...[apiKey, operatorKey].flatMap((key) => (key === undefined ? [] : [sha256(key)])),
      ...(await organisations.defaultKeyHashes()),
      ...(await organisations.operatorKeyHashes()),
    ],
  })
}

/** Of a host below the domain of previews. */
export function previewUrl(base: URL, host: string): string {
  return `${base.protocol}//${host}${base.port === '' ? '' : `:${base.port}`}`
}
