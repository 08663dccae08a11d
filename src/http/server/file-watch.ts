import type { FileChange } from '../../sandbox/index.ts'
import { heartbeat, type Encoding } from './event-writer.ts'

/** Changes have no numbers: a client that comes back reads the folder again. */
export const changeEncoding: Encoding<readonly FileChange[]> = {
  encode: (changes) => Buffer.from(changes.map((change) => `data: ${JSON.stringify(change)}\n\n`).join('')),
  heartbeat: () => heartbeat,
}
