/** `npm run bench`: all of it on the paths of a server as shipped, which are those of a folder here. */
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { withDefaultPaths } from '../e2e/as-shipped/paths.ts'

const folder = mkdtempSync('/var/tmp/atoll-bench-')
chmodSync(folder, 0o711)
const [command = '', ...argv] = [
  ...withDefaultPaths(folder),
  process.execPath,
  join(import.meta.dirname, 'benches.ts'),
  ...process.argv.slice(2),
]
const { status } = spawnSync(command, argv, { stdio: 'inherit' })
rmSync(folder, { recursive: true })
process.exit(status ?? 1)
