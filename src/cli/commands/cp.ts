import { stat } from 'node:fs/promises'
import type { Command } from 'commander'
import { Sandbox } from '../../../sdk/src/index.ts'
import { CliError, exitCodes, UsageError } from '../exit-codes.ts'
import { downloadFile, type Remote, uploadFile } from '../file-transfer.ts'
import { downloadFolder, uploadFolder } from '../folder-transfer.ts'
import { parseLocation, targetOf } from '../location.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  recursive?: boolean
  user?: string
}

export function addCp(program: Command): void {
  program
    .command('cp')
    .description('copy files and folders into a sandbox or out of it')
    .argument('<source>', 'a path, or SANDBOX:/path')
    .argument('<target>', 'a path, or SANDBOX:/path')
    .option('-r, --recursive', 'copy a folder with all that it holds')
    .option('--user <name>', 'who reads or writes there, by name or id')
    .action(async (from: string, to: string, _options: Options, command: Command) => {
      const flags = command.optsWithGlobals<Options>()
      const source = parseLocation(from)
      const target = parseLocation(to)
      const id = source.sandboxId ?? target.sandboxId
      if (id === undefined || (source.sandboxId !== undefined && target.sandboxId !== undefined)) {
        throw new UsageError('one of source and target must be in a sandbox, as SANDBOX:/path')
      }
      const sandbox = await Sandbox.connect(id, { client: await clientOf(flags) })
      const copy = target.sandboxId === undefined ? download : upload
      await copy({ sandbox, user: flags.user }, source.path, target.path, flags.recursive ?? false)
    })
}

async function upload(remote: Remote, source: string, target: string, isRecursive: boolean): Promise<void> {
  const isFolder = await isLocalFolder(source)
  if (isFolder === undefined) throw new CliError(`there is no file ${source}`, { exitCode: exitCodes.notFound })
  if (isFolder && !isRecursive) throw new UsageError(`${source} is a folder: add -r`)
  const place = targetOf(source, target, await isRemoteFolder(remote, target))
  await (isFolder ? uploadFolder : uploadFile)(remote, source, place)
}

async function download(remote: Remote, source: string, target: string, isRecursive: boolean): Promise<void> {
  const isFolder = await isRemoteFolder(remote, source)
  if (isFolder && !isRecursive) throw new UsageError(`${remote.sandbox.id}:${source} is a folder: add -r`)
  const place = targetOf(source, target, (await isLocalFolder(target)) ?? false)
  await (isFolder ? downloadFolder : downloadFile)(remote, source, place)
}

async function isLocalFolder(path: string): Promise<boolean | undefined> {
  try {
    return (await stat(path)).isDirectory()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

async function isRemoteFolder({ sandbox, user }: Remote, path: string): Promise<boolean> {
  const { exitCode } = await sandbox.run('test', { args: ['-d', path], user })
  return exitCode === 0
}
