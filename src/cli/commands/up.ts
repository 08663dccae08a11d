import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { CliError } from '../exit-codes.ts'
import { onInterrupt } from '../interrupt.ts'
import { examples } from '../options.ts'

const projectDir = join(import.meta.dirname, '../../..')
/** As in `npm start` (docs/operate/performance.md). */
const nodeFlags = ['--max-semi-space-size=4']

export function addUp(program: Command): void {
  program
    .command('up')
    .description('start the server of this machine, in the foreground')
    .addHelpText('after', examples('atoll up'))
    .action(async () => {
      const imageDir = process.env['ATOLL_IMAGE_DIR'] || '/var/lib/atoll/images'
      if (!existsSync(imageDir)) {
        throw new CliError(`there are no images in ${imageDir}`, { hint: `run "npm run setup" in ${projectDir}` })
      }
      process.exitCode = await runProgram('src/server/main.ts', nodeFlags)
    })
}

/** Runs a program of the server with the terminal of this one. Returns its exit code. */
export async function runProgram(file: string, flags: readonly string[] = []): Promise<number> {
  if (process.platform !== 'linux') throw new CliError('the server runs on Linux alone')
  const child = spawn(process.execPath, [...flags, join(projectDir, file)], { cwd: projectDir, stdio: 'inherit' })
  // The program ends in order. A terminal signals both processes, and the second signal has no effect.
  const restore = onInterrupt(() => void child.kill('SIGINT'))
  const terminate = () => child.kill('SIGTERM')
  process.removeAllListeners('SIGTERM')
  process.on('SIGTERM', terminate)
  await once(child, 'exit')
  restore()
  process.off('SIGTERM', terminate)
  return child.exitCode ?? 1
}
