import type { BuildEvent } from '../../sdk/src/index.ts'
import { note, printable } from './output.ts'

/** The image that every server has installed. */
export const baseImage = 'base'

/** Tells what a build does on standard error: standard output is for the id. */
export function tellBuild(event: BuildEvent): void {
  if (event.event === 'build_log') note(event.message)
  else process.stderr.write(printable(event.data))
}
