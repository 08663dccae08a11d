// A reporter of node:test that yields one line of counts at the end: `passed failed skipped`. A test file that cannot be
// loaded, or that ends early, counts as failed in the runner's own summary.

/** @param {AsyncIterable<{type: string, data: any}>} events */
export default async function* tally(events) {
  for await (const { type, data } of events) {
    // Each file has a summary of its own; the one without a file is that of the whole run.
    if (type !== 'test:summary' || data.file !== undefined) continue
    const { passed, failed, cancelled, skipped, todo } = data.counts
    yield `${passed} ${failed + cancelled} ${skipped + todo}\n`
  }
}
