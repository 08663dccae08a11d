import type { Harness } from './harness.ts'

/** Loads a harness by the name that `agent_config.harness` gives it; only the one in use is imported. */
export async function loadHarness(name: string): Promise<Harness | undefined> {
  switch (name) {
    case 'pi':
      return (await import('./pi/index.ts')).piHarness
    case 'claude':
      return (await import('./claude/index.ts')).claudeHarness
    default:
      if (name.startsWith('acp:')) return (await import('./acp/index.ts')).acpHarness(name)
      return undefined
  }
}
