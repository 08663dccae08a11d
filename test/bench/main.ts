/** `npm run bench`: all of it on a machine as shipped, so that the server has the default paths. */
import { once } from 'node:events'
import { ShippedMachine } from '../e2e/as-shipped/machine.ts'

await using machine = await ShippedMachine.make()
const benches = machine.spawn({ stdio: 'inherit' }, process.execPath, 'test/bench/benches.ts', ...process.argv.slice(2))
const [status] = (await once(benches, 'exit')) as [number | null]
process.exitCode = status ?? 1
