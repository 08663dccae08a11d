import { Readable } from 'node:stream'
import { isServiceError, ServiceError } from '../../errors.ts'
import { latin1OfPath } from '../../lib/byte-path.ts'
import { defined } from '../../lib/defined.ts'
import { tarEnd, tarFile } from '../../protocol/tar-writer.ts'
import { BuildSandbox, detailsOf, nameOf } from '../build/sandbox.ts'
import type { Origin, StepPlace } from '../build/stage.ts'
import type { Context } from '../contexts/context.ts'
import { type CopyOperation, withoutLine } from '../dockerfile/index.ts'
import type { FileTree } from '../file-tree.ts'
import { tarIn } from './archive.ts'
import { pathOf, SandboxTree } from './sandbox-tree.ts'
import { type CopyEntry, selectSources } from './sources.ts'
import { targetOf } from './target.ts'

/** What is copied from. A context's files are root's; those of an image keep their owner. */
export interface CopyFrom {
  tree: FileTree
  /** Of `ADD`: reads a file that may be an archive. */
  read?: (path: string) => Readable
  isContext: boolean
  pack(entries: readonly Pick<CopyEntry, 'path' | 'name'>[], skip: ReadonlySet<string>): Promise<Readable> | Readable
}

/** Codes of errors that are no fault of a step. */
const ofServer = new Set(['unavailable', 'no_capacity', 'quota_exceeded', 'rate_limited'])
const heredocMode = 0o644
/** Files that each sandbox gets anew. */
const ofThisSandbox = '/run/atoll'
const rootOwner = '0:0'
/** Of a sandbox whose files are copied: nothing else runs there. */
const sourceMemoryMb = 1024

export function fromContext(context: Context): CopyFrom {
  return {
    tree: context,
    isContext: true,
    read: (path) => context.read(path),
    pack: (entries, skip) => context.pack(entries, { skip }),
  }
}

/** Runs `work` with the files of a stage or an image, in a sandbox of its own. */
export async function withFilesOf<Result>(
  { scope }: BuildSandbox,
  origin: Origin,
  work: (from: CopyFrom) => Promise<Result>,
): Promise<Result> {
  await using sandbox = await BuildSandbox.start(scope, origin, sourceMemoryMb)
  const { orgId, signal } = scope
  return await work({
    tree: new SandboxTree(sandbox),
    isContext: false,
    pack: async (entries, skip) => {
      const packed = entries.map(({ path, name }) => ({ path: pathOf(path), name: pathOf(name) }))
      return await sandbox.files.pack(orgId, sandbox.id, packed, {
        skip: [ofThisSandbox, ...[...skip].map(pathOf)],
        signal,
      })
    },
  })
}

/** Carries out `COPY` and `ADD`. `from` is absent for heredocs alone. Throws `build_failed`. */
export async function copyInto(
  sandbox: BuildSandbox,
  operation: CopyOperation,
  from: CopyFrom | undefined,
): Promise<void> {
  const { owner, mode, sources } = operation
  const heredocs = sources.flatMap((source) => ('content' in source ? [source] : []))
  const selection = from && (await selectSources(from.tree, operation))
  const entries = selection?.entries ?? []
  const all = [...entries, ...heredocs.map(() => ({ type: 'file' as const }))]
  if (all.length === 0) return
  const target = await targetOf(sandbox, operation, all)
  const options = { target: target.folder, ...defined({ owner: owner ?? defaultOwner(from), mode }) }
  const plain: CopyEntry[] = []
  for (const entry of entries) {
    const isArchive = entry.type === 'file' && (await addArchive(sandbox, operation, from, entry))
    if (!isArchive) plain.push(entry)
  }
  if (from !== undefined && selection !== undefined && plain.length > 0) {
    const renamed = plain.map((entry) => ({ ...entry, name: target.name ?? entry.name }))
    await unpack(sandbox, await from.pack(renamed, selection.skip), options)
  }
  if (heredocs.length > 0) {
    const files = heredocs.map(({ name, content }) => ({ name: target.name ?? name, content }))
    await unpackHeredocs(sandbox, files, options)
  }
}

/** An error of what is copied says which step it was; those of the server stay. */
export async function inStep(place: StepPlace, work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (error) {
    const isOfStep = isServiceError(error) && !ofServer.has(error.code)
    if (!isOfStep || 'step' in error.details) throw error
    throw new ServiceError('build_failed', `${nameOf(place)} failed: ${withoutLine(error.message)}`, {
      cause: error,
      details: detailsOf(place),
    })
  }
}

/** Unpacks the archive that the entry is, if it is one and is to be unpacked. */
async function addArchive(
  sandbox: BuildSandbox,
  { type, unpacks, target, owner, mode }: CopyOperation,
  from: CopyFrom | undefined,
  { path }: CopyEntry,
): Promise<boolean> {
  const read = from?.read
  if (type !== 'add' || !unpacks || read === undefined) return false
  const tar = await tarIn(() => read(path), sandbox)
  if (tar === undefined) return false
  await unpack(sandbox, tar, { target, asArchive: true, ...defined({ owner, mode }) })
  return true
}

/** Writes files with mode 0644, or that of `options`. */
export async function unpackHeredocs(
  sandbox: BuildSandbox,
  files: readonly { name: string; content: string }[],
  options: { target: string; owner?: string; mode?: string },
): Promise<void> {
  await unpack(sandbox, Readable.from(heredocTar(files)), options)
}

/** Takes a tar into a sandbox, and destroys it. */
export async function unpack(
  { scope, id, files }: BuildSandbox,
  tar: Readable,
  options: Parameters<BuildSandbox['files']['unpack']>[3],
): Promise<void> {
  const { orgId, signal } = scope
  // One before the guest reads is told when it does.
  tar.once('error', () => undefined)
  try {
    await files.unpack(orgId, id, tar, { ...options, signal })
  } finally {
    tar.destroy()
  }
}

function defaultOwner(from: CopyFrom | undefined): string | undefined {
  return from === undefined || from.isContext ? rootOwner : undefined
}

function* heredocTar(files: readonly { name: string; content: string }[]): Generator<Buffer> {
  for (const { name, content } of files) {
    yield* tarFile({ name: latin1OfPath(name), mode: heredocMode, modifiedSeconds: 0 }, Buffer.from(content))
  }
  yield tarEnd
}
