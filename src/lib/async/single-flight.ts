/** A call that is made once at a time: callers that come while it runs share its result, or its error. */
export function singleFlight<Result>(call: () => Promise<Result>): () => Promise<Result> {
  let running: Promise<Result> | undefined
  return () => {
    running ??= call().finally(() => {
      running = undefined
    })
    return running
  }
}
