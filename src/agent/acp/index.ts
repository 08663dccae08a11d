/**
 * Harness `acp:<command>`: any agent program that speaks the Agent Client Protocol on its standard input and output. The
 * program is a child of this process and lives from `open` to `close`. The next turn restarts a program that has died.
 */
import type { Harness } from '../harness.ts'
import { acpCommand } from './process.ts'
import { AcpSession } from './session.ts'

/** The version of the protocol. Programs report their own. */
const acpVersion = '1'

export function acpHarness(name: string): Harness {
  return {
    name,
    version: acpVersion,
    async open(settings) {
      const command = acpCommand(name)
      if (!command) throw new Error('acp: must be followed by the command of an agent.')
      return await AcpSession.open(command, settings)
    },
  }
}
