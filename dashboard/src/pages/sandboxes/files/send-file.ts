import { ConnectionError, errorOf } from 'atoll-sdk'
import { client } from '../../../account/client.ts'
import type { Place } from './place.ts'

interface SendOptions {
  signal: AbortSignal
  /** Called with the bytes that the browser has sent. */
  onSent: (bytes: number) => void
}

/** Writes a file of the reader's machine. `fetch` does not tell how far it is, so this does not use the SDK. Throws `AtollError`. */
export async function sendFile(sandboxId: string, place: Place, file: Blob, options: SendOptions): Promise<void> {
  const { path, pathBase64 } = place
  const query = pathBase64 === undefined ? { path } : { pathBase64 }
  const url = client.address(`/api/sandboxes/${encodeURIComponent(sandboxId)}/files`, query)
  const { signal, onSent } = options
  signal.throwIfAborted()
  await new Promise<void>((resolve, reject) => {
    const request = new XMLHttpRequest()
    request.open('PUT', url)
    request.setRequestHeader('Content-Type', 'application/octet-stream')
    request.upload.addEventListener('progress', ({ loaded }) => onSent(loaded))
    request.addEventListener('load', () => {
      if (request.status < 400) resolve()
      else reject(errorOf(request.status, headersOf(request), request.responseText))
    })
    request.addEventListener('error', () => reject(new ConnectionError('the connection broke')))
    request.addEventListener('abort', () => reject(signal.reason as Error))
    signal.addEventListener('abort', () => request.abort(), { once: true })
    request.send(file)
  })
}

function headersOf(request: XMLHttpRequest): Headers {
  const headers = new Headers()
  const retryAfter = request.getResponseHeader('Retry-After')
  if (retryAfter !== null) headers.set('Retry-After', retryAfter)
  return headers
}
