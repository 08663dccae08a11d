import { exitCodes } from './exit-codes.ts'

/** What must be undone, however the process ends. Synchronous, because an exit waits for nothing. */
const cleanups = new Set<() => void>()
let handler: (() => void) | undefined

/** Adds an undoing; returns what takes it back without doing it. */
export function onExit(cleanup: () => void): () => void {
  cleanups.add(cleanup)
  return () => cleanups.delete(cleanup)
}

/** Has Ctrl-C do something else than ending the command, until the returned function is called. */
export function onInterrupt(interrupted: () => void): () => void {
  handler = interrupted
  return () => {
    handler = undefined
  }
}

/** Ends the process at once with the code of its signal, after the undoings. */
export function endOnSignals(): void {
  process.on('exit', () => {
    for (const cleanup of cleanups) cleanup()
  })
  process.on('SIGINT', () => {
    if (handler !== undefined) handler()
    else process.exit(exitCodes.interrupted)
  })
  process.on('SIGTERM', () => process.exit(143))
  process.on('SIGHUP', () => process.exit(129))
}
