import { Readable } from 'node:stream'

/** A stream of what `pull` gets, frame by frame; `null` ends it. `close` frees the connection that it owns. */
export function streamOf(pull: () => Promise<Buffer | null>, close: () => void, signal?: AbortSignal): Readable {
  const body = new Readable({
    signal,
    read() {
      // One frame for each call: `push` requests the next one.
      pull().then(
        (chunk) => body.push(chunk),
        (error: Error) => body.destroy(error),
      )
    },
    destroy(error, callback) {
      close()
      callback(error)
    },
  })
  return body
}
