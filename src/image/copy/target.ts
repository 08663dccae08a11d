import { posix } from 'node:path'
import { ignoreNotFound } from '../../errors.ts'
import { asRoot, type BuildSandbox } from '../build/sandbox.ts'
import { type CopyOperation, failed } from '../dockerfile/index.ts'
import type { CopyEntry } from './sources.ts'

/** Where entries go: a folder, and, of one file that gets another name, that. */
export interface CopyTarget {
  folder: string
  name?: string
}

/**
 * What the target of `COPY` or `ADD` means: a folder when it ends with a slash or one is there, or when a folder is copied; else the path of the one file.
 * Throws `build_failed` for several files without a folder.
 */
export async function targetOf(
  sandbox: BuildSandbox,
  { target, keepsParents, line }: Pick<CopyOperation, 'target' | 'keepsParents' | 'line'>,
  entries: readonly Pick<CopyEntry, 'type'>[],
): Promise<CopyTarget> {
  const folder = posix.normalize(target)
  const isFolder = keepsParents || target.endsWith('/') || entries.every(({ type }) => type === 'directory')
  if (isFolder || (await isFolderIn(sandbox, folder))) return { folder }
  if (entries.length === 1) return { folder: posix.dirname(folder), name: posix.basename(folder) }
  throw failed(line, `several files need a folder: end ${JSON.stringify(target)} with a slash`)
}

async function isFolderIn({ scope, id, files }: BuildSandbox, path: string): Promise<boolean> {
  const found = await files.stat(scope.orgId, id, path, asRoot).catch(ignoreNotFound)
  return found?.isDir ?? false
}
