const second = 1000
const minute = 60 * second
const hour = 60 * minute

/** After which time a failed attempt is repeated, by the number of attempts so far. */
const pausesMs = [5 * second, 30 * second, 2 * minute, 15 * minute, hour, 6 * hour, 24 * hour]

/** Undefined when there is no further attempt. */
export function pauseAfter(attempts: number): number | undefined {
  return pausesMs[attempts - 1]
}

/** Attempts in a row that fail before a destination is left alone for a while. */
const failuresMax = 5
const circuitFirstMs = 10 * second
const circuitMaxMs = 10 * minute
/** Failures without a success for so long disable a destination. */
export const disabledAfterMs = 5 * 24 * hour

/** For how long nothing is sent after so many failures in a row; 0: at once. It doubles with each. */
export function circuitPause(failures: number): number {
  if (failures < failuresMax) return 0
  return Math.min(circuitFirstMs * 2 ** Math.min(failures - failuresMax, 20), circuitMaxMs)
}
