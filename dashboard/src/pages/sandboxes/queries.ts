import type { SandboxInfo } from 'atoll-sdk'
import { sandboxKey, sandboxOf } from '../../sandboxes/sandbox.ts'

/** Reads of one sandbox that several parts of its page share. None wakes it, so its events may make them stale. */

interface Reading {
  signal: AbortSignal
}

export function autoscaleQuery(info: SandboxInfo) {
  return {
    queryKey: sandboxKey(info.sandboxID, 'autoscale'),
    queryFn: ({ signal }: Reading) => sandboxOf(info).autoscale({ signal }),
  }
}

export function previewsQuery(info: SandboxInfo) {
  return {
    queryKey: sandboxKey(info.sandboxID, 'previews'),
    queryFn: ({ signal }: Reading) => sandboxOf(info).previews({ signal }),
  }
}

export function egressQuery(info: SandboxInfo) {
  return {
    queryKey: sandboxKey(info.sandboxID, 'egress'),
    queryFn: ({ signal }: Reading) => sandboxOf(info).egress.get({ signal }),
  }
}

export function metricsQuery(info: SandboxInfo) {
  return {
    queryKey: sandboxKey(info.sandboxID, 'metrics'),
    queryFn: ({ signal }: Reading) => sandboxOf(info).metrics({ signal }),
  }
}
