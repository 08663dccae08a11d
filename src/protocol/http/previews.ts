import { z } from 'zod'
import { at, ids, previewHost, showExample } from './examples.ts'
import { milliTime, port, secondTime } from './common.ts'

/** The SDK sends `{}` for an absent value. */
export const authConfig = z.strictObject({
  scheme: z.literal('bearer').optional().describe('The token is sent as `Authorization: Bearer`'),
  token: z.string().optional().describe('`auto` (default), or 16 and more characters'),
})

export const putPreview = z.object({
  port: port.describe('Port in the sandbox'),
  domain: z
    .string()
    .nullish()
    .describe('A host name of your own, which leads here once its TXT record is seen; `null` removes it'),
  authConfig: authConfig.nullish().describe('The token to demand; `null` demands none'),
})
showExample(putPreview, { port: 3000, authConfig: { scheme: 'bearer', token: 'auto' } })

export const preview = z
  .object({
    id: z.string().describe('Id of the preview, `pv-…`'),
    sandboxId: z.string().describe('The sandbox that serves it'),
    orgId: z.string().describe('The organisation that owns it'),
    hostname: z.string().describe('Host name under which the port answers'),
    customHostname: z.string().optional().describe('Host name of your own that leads here too'),
    verification: z
      .object({
        name: z.string().describe('Name of the TXT record'),
        value: z.string().describe('Its text'),
      })
      .optional()
      .describe('With a domain: the TXT record that proves it to be yours'),
    port: z.int().describe('Port in the sandbox'),
    sslStatus: z
      .enum(['pending', 'active', 'failed', 'disabled'])
      .describe('`pending` until the TXT record of the domain is seen, then until a certificate is served'),
    authConfig: z
      .object({
        scheme: z.literal('bearer').optional().describe('The token is sent as `Authorization: Bearer`'),
      })
      .describe('Without `scheme`, it has no token of its own'),
    createdAt: secondTime.describe('When it was declared'),
    previewAuthToken: z.string().optional().describe('Shown this once'),
  })
  .meta({
    id: 'Preview',
    examples: [
      {
        id: ids.preview,
        sandboxId: ids.sandbox,
        orgId: ids.org,
        hostname: previewHost,
        port: 3000,
        sslStatus: 'active',
        authConfig: { scheme: 'bearer' },
        createdAt: at.second,
      },
    ],
  })

export const rotated = z
  .object({
    previewAuthToken: z.string().describe('The new token'),
    scheme: z.literal('bearer').describe('The token is sent as `Authorization: Bearer`'),
  })
  .meta({ id: 'RotatedToken', examples: [{ previewAuthToken: 'atoll_…', scheme: 'bearer' }] })

export const visit = z
  .object({
    url: z.string().describe('Where a browser opens the preview'),
    expiresAt: milliTime.nullable().describe('Until when it may be opened; `null` when the preview demands no token'),
  })
  .meta({
    id: 'PreviewVisit',
    examples: [{ url: `https://${previewHost}/?token=pvt_visit_…`, expiresAt: at.millisecond }],
  })
