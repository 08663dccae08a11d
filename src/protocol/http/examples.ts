import { z } from 'zod'

/**
 * What the examples of the reference are about. Each operation is shown with these ids, and `test/api/examples.test.ts` sends what is shown,
 * with the ids of what it has made in their place. A schema that is asked for or answered by itself has its example in `.meta`.
 */
export const ids = {
  org: 'org_3t8m2c5w9x1k7q4z',
  key: 'key_6m1x8c3z7q2k9w4f',
  sandbox: 'sb-7f3k9q2m5x8w1c4z',
  checkpoint: 'cp-5m1x8c3z7q2k9w4f',
  patch: 'pa-2w9k4f7x1m5c8z3q',
  preview: 'pv-8c4z1q6k3m9x2f7w',
  exec: 'es-6x2f8w3q9c1m4k7z',
  terminal: 'ps-9q5m2z7x4f1k8c3w',
  image: 'img-4k7c1w8f3x9q2z5m',
  context: 'ctx-8w2k5z9f3m7q1x6c',
  volume: 'vol-1z6q3f9m7w2x5k8c',
  cache: 'ca-9f2c4e0b6d1a8c37-41c0aa9b7c11d2e38f60-0',
  session: 'session_2x7m4q9c1k5w8f3z',
  capsule: 'mom_4w9k2x7m5q1c8z3f',
  capsuleToken: 'moment_x7q2m9k4f1w8c5z3x7q2m9k4f1w8c5z3x7q2m9k4f1w',
  message: 'msg_5c8f2z6w1x9k3m7q',
  webhook: 'whk_9m3x1k8f4z2q7w5c',
  delivery: 'msg_7w5c9m3x1k8f4z2q',
  secretStore: 'ss-3q8z1m6w4c9f2k7x',
  secret: 'ss-8k2f5w9x1z7m3c6q',
  event: 'evt_7w3z9k5f2q8m1x4c',
} as const

export const at = { second: '2026-01-15T10:30:00Z', millisecond: '2026-01-15T10:30:00.000Z' } as const
export const previewHost = `${ids.sandbox}-p3000.preview.example.com`

/** Gives the schema of a body its example. */
export function showExample(schema: z.ZodType, example: object): void {
  z.globalRegistry.add(schema, { ...schema.meta(), examples: [example] })
}
