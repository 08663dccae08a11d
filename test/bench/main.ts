/**
 * `npm run bench`: on a machine as shipped, so that the server has the default paths. `npm run bench -- start http` runs two of its
 * benches, and `npm run --silent bench -- --json` prints one JSON document. `--install` downloads the programs
 * of others that some rows need.
 */
import { once } from 'node:events'
import { ShippedMachine } from '../e2e/as-shipped/machine.ts'
import { installPackages } from './debian-packages.ts'
import { optionsOf } from './options.ts'

const argv = process.argv.slice(2)
// The machine of the bench has no network.
if (optionsOf(argv).install) await installPackages()
await using machine = await ShippedMachine.make()
const benches = machine.spawn({ stdio: 'inherit' }, process.execPath, 'test/bench/benches.ts', ...argv)
// The machine is removed however the bench ends, and the bench has a process session of its own.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => benches.kill(signal))
const [status] = (await once(benches, 'exit')) as [number | null]
process.exitCode = status ?? 1
