/**
 * `npm run bench`: on a machine as shipped, so that the server has the default paths. `npm run bench -- start http` runs two of its
 * benches, and `npm run --silent bench -- --json` prints one JSON document.
 */
import { once } from 'node:events'
import { ShippedMachine } from '../e2e/as-shipped/machine.ts'
import { optionsOf } from './options.ts'

const argv = process.argv.slice(2)
optionsOf(argv)
await using machine = await ShippedMachine.make()
const benches = machine.spawn({ stdio: 'inherit' }, process.execPath, 'test/bench/benches.ts', ...argv)
// The machine is removed however the bench ends, and the bench has a process session of its own.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => benches.kill(signal))
const [status] = (await once(benches, 'exit')) as [number | null]
process.exitCode = status ?? 1
