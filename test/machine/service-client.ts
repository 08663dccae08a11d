import assert from 'node:assert/strict'
import type { ApiAnswer, ApiClient } from '../support/api-client.ts'

/** A key of the service on the machine of `machine.sh`. */
export const key = process.env['ATOLL_MACHINE_KEY'] ?? ''

export async function ok(answer: Promise<ApiAnswer>): Promise<ApiAnswer['body']> {
  const { status, body } = await answer
  assert.ok(status < 300, `${status} ${JSON.stringify(body)}`)
  return body
}

/** Runs a script in a sandbox. Returns its output without the last line end. */
export async function shell(api: ApiClient, id: string, script: string): Promise<string> {
  const command = { cmd: 'bash', args: ['-c', script], timeout: 300 }
  const { exitCode, stdout, stderr } = await ok(api.post(`/api/sandboxes/${id}/exec/run`, command))
  assert.equal(exitCode, 0, stderr)
  return stdout.trim()
}
