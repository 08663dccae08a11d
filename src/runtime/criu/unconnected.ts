import type { HostTool } from '../hostd/index.ts'

/**
 * Waits until the guest whose process this is has closed its ends of connections too: CRIU refuses what leads out of the
 * sandbox. Gives up after a second; then CRIU says what it found.
 */
export async function connectionsClosed(hostd: HostTool, pid: number): Promise<void> {
  await hostd.runTool(['await-unconnected', '--pid', String(pid)])
}
