import { z } from 'zod'
import { auditRoot } from '../audit.ts'
import { milliTime } from './common.ts'
import { at, ids } from './examples.ts'

const filters = {
  actor: z.string().optional().describe('Id of the key, session or sandbox that acted'),
  operation: z.string().optional().describe('`operationId` of the reference, such as `runCommand`'),
  subject: z.string().optional().describe('An id, name or path that the call was about'),
  from: z.iso.datetime({ offset: true }).optional().describe('Not before'),
  to: z.iso.datetime({ offset: true }).optional().describe('Before'),
  status: z
    .string()
    .regex(/^(?:ok|[45]\d\d)$/, 'must be ok or a status')
    .optional()
    .describe('`ok`: calls that were let in; a status: those that were refused with it or failed'),
}

export const listAuditQuery = z.object({
  ...filters,
  limit: z.coerce.number().int().min(1).max(1000).optional().describe('Entries of a page; default 100'),
  cursor: z
    .string()
    .regex(/^\d{1,15}$/)
    .optional()
    .describe('`X-Next-Cursor` of the page before'),
})

export const exportAuditQuery = z.object({
  after: z.coerce.number().int().min(0).optional().describe('Only entries above this number'),
})

export const auditEntry = z
  .object({
    orgId: z.string().describe("The organisation; empty in the operator's chain"),
    number: z.int().positive().describe('Its place in the chain, without gaps'),
    ts: milliTime.describe('When'),
    actorType: z.string().describe('`key`, `token`, `operator`, `server`'),
    actorId: z.string().nullable().describe('Id of the key or of the session; `null`: none'),
    address: z.string().nullable().describe('Where from'),
    operation: z.string().describe('`operationId` of the call'),
    request: z.string().describe('The call: the entry of its failure has the same'),
    subject: z.record(z.string(), z.unknown()).describe('What it was about, without secrets'),
    status: z.int().nullable().describe('`null`: it was let in; else with what it was refused, or has failed'),
    previousHash: z.string().describe('Hash of the entry before'),
    hash: z.string().describe('SHA-256 of that and of this entry; see the page about the audit'),
  })
  .meta({
    id: 'AuditEntry',
    examples: [
      {
        ...{ orgId: ids.org, number: 1, ts: at.millisecond, actorType: 'key', actorId: ids.key, address: '192.0.2.7' },
        ...{ operation: 'deleteSandbox', request: '5f0c1a9e7b3d2468', subject: {}, status: null },
        ...{ previousHash: auditRoot, hash: auditRoot.replaceAll('0', 'a') },
      },
    ],
  })

export const auditHead = z
  .object({
    number: z.int().describe('The newest entry; 0: there is none'),
    hash: z.string().describe('Its hash'),
    prunedNumber: z.int().describe('The newest entry that was deleted because of its age'),
    prunedHash: z.string().describe('Its hash, from which the chain goes on'),
  })
  .meta({
    id: 'AuditHead',
    examples: [{ number: 1, hash: auditRoot.replaceAll('0', 'a'), prunedNumber: 0, prunedHash: auditRoot }],
  })
