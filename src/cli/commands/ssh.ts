import { spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Command } from 'commander'
import { CliError, ownFailure } from '../exit-codes.ts'
import { onInterrupt } from '../interrupt.ts'
import { examples, takesCommand } from '../options.ts'
import { type Flags, settingsOf } from '../settings.ts'
import { publicKey } from '../ssh/files.ts'
import { hostOf, hostOptions } from '../ssh/host-options.ts'

export function addSsh(program: Command): void {
  takesCommand(program.command('ssh'))
    .description("connect to a sandbox by this machine's ssh")
    .addHelpText(
      'after',
      examples('atoll ssh sb-0123456789abcdef', 'atoll ssh sb-0123456789abcdef -- -L 8080:localhost:3000 -N'),
    )
    .argument('<sandbox>')
    .argument('[argument...]', 'a command; after --, flags of ssh before it')
    .exitOverride(ownFailure)
    .action(async (target: string, argv: string[], _options: Flags, command: Command) => {
      process.exitCode = await ssh(target, argv, command.optsWithGlobals<Flags>()).catch(ownFailure)
    })
}

async function ssh(target: string, argv: readonly string[], flags: Flags): Promise<number> {
  const { url, apiKey } = await settingsOf(flags)
  await publicKey()
  const options = hostOptions({}).flatMap(([name, value]) => ['-o', `${name}=${value}`])
  // The key stays out of the arguments, which others see.
  const env = { ...process.env, ATOLL_URL: url, ...(apiKey === undefined ? {} : { ATOLL_API_KEY: apiKey }) }
  const child = spawn('ssh', [...options, hostOf(target), ...argv], { stdio: 'inherit', env })
  // A terminal interrupts ssh too, which decides what that means.
  const restore = onInterrupt(() => undefined)
  try {
    await once(child, 'exit')
  } catch (error) {
    throw new CliError('ssh cannot be started here', { hint: 'install an OpenSSH client', cause: error })
  } finally {
    restore()
  }
  return child.exitCode ?? 255
}
