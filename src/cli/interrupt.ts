import { exitCodes } from './exit-codes.ts'

/** What must be undone, however the process ends. Synchronous, because an exit waits for nothing. */
const cleanups = new Set<() => void>()
let handler: (() => void) | undefined
let lastWork: (() => Promise<void>) | undefined

/** Registers a cleanup; returns a function that removes it without a run. */
export function onExit(cleanup: () => void): () => void {
  cleanups.add(cleanup)
  return () => cleanups.delete(cleanup)
}

/** Makes Ctrl-C call `interrupted` instead of ending the command, until the returned function is called. */
export function onInterrupt(interrupted: () => void): () => void {
  handler = interrupted
  return () => {
    handler = undefined
  }
}

/** Makes signals and a closed output wait for `work`, which must end soon in any case. */
export function beforeEnd(work: () => Promise<void>): void {
  lastWork = work
}

/** Ends the process from outside its commands. */
export function endProcess(exitCode: number): void {
  if (lastWork === undefined) process.exit(exitCode)
  const exit = () => process.exit(exitCode)
  lastWork().then(exit, exit)
}

/** Ends the process at once with the code of its signal, after the cleanups. */
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
