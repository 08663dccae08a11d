import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import type { Sandbox, SandboxService } from '../sandbox/index.ts'

export interface EndpointContext {
  sandboxes: Pick<SandboxService, 'readOfCaller' | 'scaling' | 'usage'>
  /** Region of the server. */
  region: string
}

export interface Endpoint {
  method: 'GET' | 'POST'
  /** Returns the JSON of the answer. `body` is undefined for a GET. */
  answer(context: EndpointContext, sandbox: Sandbox, body: string | undefined): Promise<object>
}

/** By path. The shapes are those of the OpenComputer API. */
export const endpoints: ReadonlyMap<string, Endpoint> = new Map([
  ['/', { method: 'GET', answer: async () => ({ endpoints: [...endpoints.keys()].filter((path) => path !== '/') }) }],
  ['/v1/status', { method: 'GET', answer: status }],
  ['/v1/limits', { method: 'GET', answer: limits }],
  ['/v1/scale', { method: 'POST', answer: scale }],
  ['/v1/metadata', { method: 'GET', answer: metadata }],
])

async function status(_context: EndpointContext, { id, startedAt }: Sandbox): Promise<object> {
  return { sandboxId: id, uptime: Math.max(0, Date.now() - startedAt.getTime()) / 1000 }
}

async function limits({ sandboxes }: EndpointContext, sandbox: Sandbox): Promise<object> {
  const usage = await sandboxes.usage.measure(sandbox)
  return {
    cpuPercent: usage.cpuPercent,
    memUsage: usage.memoryBytes,
    memLimit: usage.memoryLimitBytes,
    pids: usage.processCount,
    netInput: usage.networkReceivedBytes,
    netOutput: usage.networkSentBytes,
    diskLimit: usage.diskLimitBytes,
    ...defined({ diskUsed: usage.diskBytes }),
  }
}

async function scale({ sandboxes }: EndpointContext, { id }: Sandbox, body = ''): Promise<object> {
  const { memoryMB: memoryMb, cpuPercent } = wantedSizes(body)
  const { memoryMb: memoryMB, cpuCount } = await sandboxes.scaling.limitFromInside(id, { memoryMb, cpuPercent })
  return { ok: true, memoryMB, cpuPercent: Math.round(cpuCount * 100) }
}

async function metadata({ region }: EndpointContext, { image }: Sandbox): Promise<object> {
  const templateBase = image.includes('/') ? image.slice(image.lastIndexOf('/') + 1) : undefined
  return { region, template: image, ...defined({ templateBase }) }
}

/** Reads JSON whatever the content type says: `curl -d` sends that of a form. */
function wantedSizes(body: string): { memoryMB?: number; cpuPercent?: number } {
  const value = parsed(body)
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalid('the body must be a JSON object')
  const { memoryMB, cpuPercent } = value as Record<string, unknown>
  for (const [name, size] of Object.entries({ memoryMB, cpuPercent })) {
    if (size !== undefined && !(Number.isSafeInteger(size) && (size as number) >= 0)) {
      throw invalid(`${name} must be a whole number`)
    }
  }
  if (!memoryMB && !cpuPercent) throw invalid('memoryMB or cpuPercent is required')
  return { memoryMB, cpuPercent } as ReturnType<typeof wantedSizes>
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body)
  } catch {
    throw invalid('the body must be JSON')
  }
}

function invalid(message: string): ServiceError {
  return new ServiceError('invalid_request', message)
}
