import { quarantinedIn } from '../host/quarantine.ts'
import type { HostCheck } from './check.ts'

/** What starts of the server have moved out of the way. It is no fault of the machine. */
export const quarantineCheck: HostCheck = {
  name: 'quarantine',
  required: false,
  async run({ dataDir }) {
    const [oldest, ...others] = await quarantinedIn(dataDir)
    if (oldest === undefined) return { state: 'works', found: 'empty' }
    const since = oldest.since.toISOString().slice(0, 10)
    const found = `${others.length + 1} sandboxes and checkpoints, since ${since}; npm run quarantine lists them`
    return { state: 'works', found }
  },
}
