/** The same call, of which one runs at a time: whoever asks meanwhile gets its result, or its error. */
export function sharedCall<Result>(call: () => Promise<Result>): () => Promise<Result> {
  let running: Promise<Result> | undefined
  return () => {
    running ??= call().finally(() => {
      running = undefined
    })
    return running
  }
}
