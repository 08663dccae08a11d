import { readFile, realpath, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import type { Command } from 'commander'
import { reasonOf } from '../../../sdk/src/reasons.ts'
import { replaceFile } from '../config-file.ts'
import { CliError, UsageError } from '../exit-codes.ts'
import { examples } from '../options.ts'
import { note, write } from '../output.ts'
import { type Flags, settingsOf } from '../settings.ts'
import { publicKey } from '../ssh/files.ts'
import { hostOf, hostOptions, hostPrefix, noQuotes } from '../ssh/host-options.ts'

interface Options extends Flags {
  write?: boolean
  file?: string
}

const begin = '# begin atoll ssh-config'
const end = '# end atoll ssh-config'

export function addSshConfig(program: Command): void {
  program
    .command('ssh-config')
    .description(`print the configuration by which ssh, scp, rsync and VS Code reach sandboxes as ${hostPrefix}SANDBOX`)
    .addHelpText('after', examples('atoll ssh-config --write'))
    .argument('[sandbox...]', 'hosts to name besides the pattern, for programs that list hosts')
    .option('--write', 'put it into ~/.ssh/config, in place of what an earlier call put there')
    .option('--file <path>', 'another file for --write')
    .action(async (targets: string[], _options: Options, command: Command) => {
      const flags = command.optsWithGlobals<Options>()
      await assertReachable(flags)
      await publicKey()
      const block = blockOf(targets, flags)
      if (!flags.write && flags.file === undefined) return await write(block)
      const path = flags.file ?? join(process.env['HOME'] || homedir(), '.ssh', 'config')
      await update(path, block)
      note(`${path} is written: ssh ${hostPrefix}SANDBOX`)
    })
}

/** ssh starts the program later, maybe with another environment. */
async function assertReachable(flags: Flags): Promise<void> {
  if (flags.key !== undefined) {
    throw new UsageError('a key in a configuration of ssh would be seen by others: "atoll login" saves it')
  }
  const { apiKey } = await settingsOf(flags)
  const lasting = await settingsOf(flags, { ...process.env, ATOLL_URL: '', ATOLL_API_KEY: '' })
  if (apiKey !== lasting.apiKey) {
    note('the key comes from ATOLL_API_KEY, which ssh must have in its environment: "atoll login" saves it')
  }
}

export function blockOf(targets: readonly string[], flags: Flags): string {
  const hosts = [...targets.map(hostOf), `${hostPrefix}*`, noQuotes]
  const lines = hostOptions(flags).map(([name, value]) => `  ${name} ${value}`)
  return [begin, `Host ${hosts.join(' ')}`, ...lines, end, ''].join('\n')
}

/** Puts the block in the place of the former one, or before all else: of an option, ssh takes the first value. */
export function withBlock(text: string, block: string): string {
  const from = text.indexOf(begin)
  const to = text.indexOf(end, from)
  if (from === -1) return text.trim() === '' ? block : `${block}\n${text}`
  if (to === -1) throw new CliError(`it has "${begin}" without "${end}"`)
  return text.slice(0, from) + block + text.slice(to + end.length).replace(/^\n/, '')
}

async function update(path: string, block: string): Promise<void> {
  try {
    // A link to the file of a repository of settings stays.
    const target = await realpath(path)
    const { mode } = await stat(target)
    await replaceFile(target, withBlock(await readFile(target, 'utf8'), block), mode & 0o777)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return await replaceFile(path, block, 0o600)
    if (error instanceof CliError) throw new CliError(`${path}: ${error.message}`, { cause: error })
    throw new CliError(`${path} cannot be changed: ${reasonOf(error)}`, { cause: error })
  }
}
