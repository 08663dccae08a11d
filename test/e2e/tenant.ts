import { randomBytes } from 'node:crypto'
import type { OrganisationLimits } from '../../src/organisation/index.ts'
import { askPreviewUntil } from './preview.ts'
import type { AtollServer } from './server.ts'

/** Given to the server as `ATOLL_OPERATOR_KEY`. */
export const operatorKey = `atoll_op_${randomBytes(24).toString('hex')}`

/** An organisation with a key of its own, until it is disposed of. */
export class Tenant implements AsyncDisposable {
  readonly server: AtollServer
  readonly orgId: string
  readonly key: string

  private constructor(server: AtollServer, orgId: string, key: string) {
    this.server = server
    this.orgId = orgId
    this.key = key
  }

  static async make(server: AtollServer, name: string, limits: Partial<OrganisationLimits> = {}): Promise<Tenant> {
    const operator = (path: string, body: object) => call(server, operatorKey, 'POST', path, body)
    const { id } = (await operator('/api/orgs', { name, limits })) as { id: string }
    const { key } = (await operator(`/api/orgs/${id}/keys`, {})) as { key: string }
    return new Tenant(server, id, key)
  }

  /** The operator changes these limits. */
  async limit(limits: Partial<OrganisationLimits>): Promise<void> {
    await call(this.server, operatorKey, 'PATCH', `/api/orgs/${this.orgId}`, { limits })
  }

  async suspend(): Promise<void> {
    await call(this.server, operatorKey, 'POST', `/api/orgs/${this.orgId}/suspend`, { reason: 'a pause' })
  }

  async resume(): Promise<void> {
    await call(this.server, operatorKey, 'POST', `/api/orgs/${this.orgId}/resume`, {})
  }

  /** Throws for a status of 400 or more. */
  async json(method: string, path: string, body?: object): Promise<unknown> {
    return await call(this.server, this.key, method, path, body)
  }

  async sandbox(): Promise<string> {
    return ((await this.json('POST', '/api/sandboxes', { timeout: 0 })) as { sandboxID: string }).sandboxID
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const left = (await this.json('GET', '/api/sandboxes')) as { sandboxID: string }[]
    await Promise.all(left.map(({ sandboxID }) => this.delete(sandboxID)))
  }

  async delete(sandboxId: string): Promise<void> {
    await this.json('DELETE', `/api/sandboxes/${sandboxId}`)
  }

  async run(sandboxId: string, script: string): Promise<string> {
    const body = { cmd: 'sh', args: ['-c', script] }
    return ((await this.json('POST', `/api/sandboxes/${sandboxId}/exec/run`, body)) as { stdout: string }).stdout
  }

  /** Serves a page at port 3000 of a sandbox and returns its host once it answers. */
  async serve(sandboxId: string): Promise<string> {
    const program = `require('http').createServer((q,s)=>s.end('page')).listen(3000,'127.0.0.1')`
    await this.json('POST', `/api/sandboxes/${sandboxId}/exec`, { cmd: 'node', args: ['-e', program] })
    const host = `${sandboxId}-p3000.preview.localhost`
    await askPreviewUntil(this.server, host, ({ body }) => body === 'page')
    return host
  }
}

async function call(server: AtollServer, key: string, method: string, path: string, body?: object): Promise<unknown> {
  const response = await server.fetch(path, {
    method,
    headers: { 'X-API-Key': key, 'Content-Type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
  return text === '' ? undefined : JSON.parse(text)
}
