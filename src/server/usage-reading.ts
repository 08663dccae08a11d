import type { Reading } from '../organisation/usage/index.ts'
import type { Sandbox, SandboxUsage } from '../sandbox/index.ts'

/** A measurement as it is counted: from the start of the machine on. */
export function readingOf({ id, orgId, startedAt }: Sandbox, usage: SandboxUsage): Reading {
  return {
    ...{ sandboxId: id, orgId, epoch: startedAt, readAt: new Date() },
    ...{ cpuUs: usage.cpuUs, sentBytes: usage.networkSentBytes, receivedBytes: usage.networkReceivedBytes },
    memoryBytes: usage.memoryBytes,
  }
}
