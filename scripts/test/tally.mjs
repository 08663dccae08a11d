// A reporter of node:test for scripts/test.sh. Its lines are `counts PASSED FAILED SKIPPED`, `file MS FILE` per test file and
// `test MS FILE NAME` per test without subtests, and `failure TEXT` for each line about a failed one
// or about a suite that failed by itself. Node counts a file that cannot be loaded, or that ends early, as failed.
import { relative } from 'node:path'
import { inspect } from 'node:util'

const failureLinesMax = 60
const failureLineLengthMax = 400

/** @param {AsyncIterable<{type: string, data: any}>} events */
export default async function* tally(events) {
  /** @type {Map<string, number>} The nesting of the last test that ended, by file. */
  const nestings = new Map()
  for await (const { type, data } of events) {
    const file = data?.file === undefined ? undefined : relative(process.cwd(), data.file)
    if (type === 'test:summary') {
      const { passed, failed, cancelled, skipped, todo } = data.counts
      if (file === undefined) yield `counts ${passed} ${failed + cancelled} ${skipped + todo}\n`
      else yield `file ${Math.round(data.duration_ms)} ${file}\n`
    } else if (type === 'test:pass' || type === 'test:fail') {
      const { nesting, name, details } = data
      // A test ends after its subtests, whose times its own includes.
      const hasSubtests = (nestings.get(file ?? '') ?? 0) > nesting
      nestings.set(file ?? '', nesting)
      const title = `${file} ${name.replaceAll('\n', ' ')}`
      if (!hasSubtests) yield `test ${Math.round(details.duration_ms)} ${title}\n`
      // Where a hook has failed, its error is the suite's, and the tests only say that they did not run.
      if (type === 'test:pass' || (hasSubtests && details.error?.failureType === 'subtestsFailed')) continue
      const lines = inspect(details.error?.cause ?? details.error).split('\n')
      for (const line of [title, ...lines.slice(0, failureLinesMax), ''])
        yield `failure ${line.slice(0, failureLineLengthMax)}\n`
    }
  }
}
