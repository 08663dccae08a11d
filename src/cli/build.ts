import type { BuildEvent } from '../../sdk/src/index.ts'
import { note, printable } from './output.ts'

/** The image that every server has installed. */
export const baseImage = 'base'

/** A line that does not end is told in parts of so many characters. */
const lineCharsMax = 8192

interface Sinks {
  /** A line of its own, without its end. */
  line: (text: string) => void
  /** Output as it is. */
  output: (text: string) => void
}

/** On standard error: standard output is for the id. */
const onStandardError: Sinks = { line: note, output: (text) => process.stderr.write(printable(text)) }

/**
 * Tells what a build does. The output of one stage is told as it comes. Those of several are mixed, so each line is whole and begins with the position
 * that the server gives the steps of stages, `[web 2/5]`.
 */
export function buildTeller({ line, output }: Sinks = onStandardError): (event: BuildEvent) => void {
  const positions = new Map<number, string>()
  const begun = new Map<string, string>()
  let isLineBegun = false
  const end = (step: number) => {
    for (const stream of ['stdout', 'stderr']) {
      const rest = begun.get(`${step} ${stream}`)
      if (rest !== undefined && rest !== '') output(`${positions.get(step)} ${rest}\n`)
      begun.delete(`${step} ${stream}`)
    }
  }
  return (event) => {
    const { step } = event
    if (event.event === 'build_log') {
      const [position] = /^\[\S+ \d+\/\d+\]/.exec(event.message) ?? []
      if (position !== undefined) positions.set(step, position)
      end(step)
      if (isLineBegun) output('\n')
      isLineBegun = false
      line(event.message)
      return
    }
    const position = positions.get(step)
    if (position === undefined) {
      isLineBegun = !event.data.endsWith('\n')
      return output(event.data)
    }
    const key = `${step} ${event.stream}`
    const lines = ((begun.get(key) ?? '') + event.data).split('\n')
    const last = lines.pop() ?? ''
    const isLong = last.length > lineCharsMax
    begun.set(key, isLong ? '' : last)
    for (const whole of isLong ? [...lines, last] : lines) output(`${position} ${whole}\n`)
  }
}
