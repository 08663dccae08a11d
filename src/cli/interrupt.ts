import { exitCodes } from './exit-codes.ts'

/** What must be undone, however the process ends. Synchronous, because an exit waits for nothing. */
const cleanups = new Set<() => void>()
let handler: (() => void) | undefined
let lastWork: (() => Promise<void>) | undefined

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

/** Has signals and a closed output wait for `work`, which ends soon whatever happens. */
export function beforeEnd(work: () => Promise<void>): void {
  lastWork = work
}

/** Ends the process from outside its commands. */
export function endProcess(exitCode: number): void {
  if (lastWork === undefined) process.exit(exitCode)
  const exit = () => process.exit(exitCode)
  lastWork().then(exit, exit)
}

/** Ends the process at once with the code of its signal, after the undoings. */
export function endOnSignals(): void {
  process.on('exit', () => {
    for (const cleanup of cleanups) cleanup()
  })
  process.on('SIGINT', () => {
    if (handler !== undefined) handler()
    else endProcess(exitCodes.interrupted)
  })
  process.on('SIGTERM', () => endProcess(143))
  process.on('SIGHUP', () => endProcess(129))
}
