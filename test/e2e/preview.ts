import { type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

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
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  const options = { host: '127.0.0.1', port: server.port, path, headers: { ...headers, Host: host } }
  request(options, resolve).on('error', reject).end()
  const response = await promise
  const body = (await response.toArray()).map(String).join('')
  return { status: response.statusCode ?? 0, headers: response.headers, body }
}

/** Asks until the answer pleases; the test's own time limit bounds it. */
export async function askPreviewUntil(
  server: { port: number },
  host: string,
  pleases: (answer: PreviewAnswer) => boolean,
): Promise<PreviewAnswer> {
  for (;;) {
    const answer = await askPreview(server, host)
    if (pleases(answer)) return answer
    await sleep(100)
  }
}
