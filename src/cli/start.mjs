// What bin/atoll runs: JavaScript that an old Node can read too, to say what it lacks.
import { existsSync } from 'node:fs'
import module from 'node:module'
import { homedir } from 'node:os'
import { join } from 'node:path'

const [major, minor] = process.versions.node.split('.').map(Number)
// Types are stripped without a flag from 22.18 on, and from 23.6 on.
if (!(major > 23 || (major === 22 && minor >= 18) || (major === 23 && minor >= 6))) {
  process.stderr.write(`atoll: ${process.execPath} is Node ${process.versions.node}: Node 22.18 or newer is needed\n`)
  process.exit(1)
}

// Compiling and stripping take more time than all the rest. A folder that cannot be written is no failure, and a home that is not there is not made.
const { env } = process
const home = env.HOME || homedir()
if (existsSync(env.XDG_CACHE_HOME || home)) {
  module.enableCompileCache(join(env.XDG_CACHE_HOME || join(home, '.cache'), 'atoll', 'compile'))
}

// Some versions call the stripping of types experimental.
const printers = process.listeners('warning')
process.removeAllListeners('warning')
process.on('warning', (warning) => {
  if (warning.name !== 'ExperimentalWarning') for (const print of printers) print.call(process, warning)
})

// By a name that the linter does not follow: it would check every JavaScript file here with the types of this program.
await import(new URL('main.ts', import.meta.url).href)
