import type { IncomingHttpHeaders } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { exchange } from '../support/api-client.ts'

export interface PreviewAnswer {
  status: number
  headers: IncomingHttpHeaders
  body: string
}

/** Asks a preview as a browser would, by its `Host` header: not every resolver leads `*.localhost` to this machine. */
export async function askPreview(
  server: { port: number },
  host: string,
  path = '/',
  headers: Record<string, string> = {},
): Promise<PreviewAnswer> {
  const url = `http://127.0.0.1:${server.port}${path}`
  const { status, headers: answered, text } = await exchange(url, { headers: { ...headers, Host: host } })
  return { status, headers: answered, body: text }
}

/** Asks until the answer pleases; the test's own time limit bounds it. */
export async function askPreviewUntil(
  server: { port: number },
  host: string,
  pleases: (answer: PreviewAnswer) => boolean,
  path = '/',
): Promise<PreviewAnswer> {
  for (;;) {
    const answer = await askPreview(server, host, path)
    if (pleases(answer)) return answer
    await sleep(100)
  }
}
