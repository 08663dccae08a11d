/**
 * `npm run bench`: on a machine as shipped, so that the server has the default paths. `npm run bench -- start http` runs two of its
 * benches, and `npm run --silent bench -- --json` prints one JSON document. `--install` downloads the programs
 * of others that some rows need.
 */
import { once } from 'node:events'
import { ShippedMachine } from '../e2e/as-shipped/machine.ts'
import { installPackages, packagesDir } from './debian-packages.ts'
import { optionsOf } from './options.ts'

/** A /var/tmp that is removed with the machine, also where a bench is interrupted and removes nothing itself. */
const ownTemporaryFolder = `
umask 0
folder=/var/lib/atoll/tmp
mkdir --mode=1777 "$folder"
[ ! -d "$0" ] || { mkdir "$folder/\${0##*/}" && mount --bind "$0" "$folder/\${0##*/}"; }
mount --rbind "$folder" /var/tmp
umask 022
exec "$@"`

const argv = process.argv.slice(2)
// The machine of the bench has no network.
if (optionsOf(argv).install) await installPackages()
await using machine = await ShippedMachine.make()
const command = [process.execPath, 'test/bench/benches.ts', ...argv]
const benches = machine.spawn({ stdio: 'inherit' }, 'sh', '-ec', ownTemporaryFolder, packagesDir, ...command)
// The machine is removed however the bench ends, and the bench has a process session of its own.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => benches.kill(signal))
const [status] = (await once(benches, 'exit')) as [number | null]
process.exitCode = status ?? 1
