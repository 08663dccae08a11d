import type { HostTool } from '../hostd/index.ts'

const endTimeoutMs = 30_000

/** Ends all CRIU processes that work in one of `folders`. Lazy-pages daemons may outlive a server, and be wanted. */
export async function endCriu(
  hostd: HostTool,
  folders: readonly string[],
  { lazyPagesToo = true } = {},
): Promise<void> {
  const lazyPages = lazyPagesToo ? 'end' : 'leave'
  await hostd.runTool(['end-criu', '--lazy-pages', lazyPages, ...each('--dir', folders)], { timeoutMs: endTimeoutMs })
}

/** Ends programs of a dead server that work on one of `paths` or below. Returns how many there were. */
export async function endStrayTools(hostd: HostTool, paths: readonly string[]): Promise<number> {
  return Number(await hostd.runTool(['end-tools', ...each('--path', paths)], { timeoutMs: endTimeoutMs }))
}

function each(name: string, values: readonly string[]): string[] {
  return values.flatMap((value) => [name, value])
}
