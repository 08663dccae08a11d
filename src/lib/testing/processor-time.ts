/**
 * Begins to measure, and returns what tells the milliseconds of processor time that this process has used since: unlike the time on the clock it
 * does not grow with what other processes of a busy machine do.
 */
export function processorTime(): () => number {
  const before = process.cpuUsage()
  return () => {
    const { user, system } = process.cpuUsage(before)
    return (user + system) / 1000
  }
}
