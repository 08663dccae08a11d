import { ServiceError } from '../../src/errors.ts'
import type {
  ComparedFile,
  CompareOptions,
  DiskRef,
  DiskTrees,
  FolderFile,
  TreeComparison,
} from '../../src/sandbox/index.ts'

/** Disks in memory: texts by absolute path, by the id of a checkpoint or sandbox. One that a test says nothing of is empty. */
export class FakeDiskTrees implements DiskTrees {
  readonly disks = new Map<string, Record<string, string>>()
  /** Those of which the data are gone. */
  readonly gone = new Set<string>()
  /** Bytes by checkpoint. */
  readonly bytes = new Map<string, number>()
  /** What was compared, as `<id> <id>`. */
  readonly compared: string[] = []
  /** Runs in the midst of each call. */
  before: (signal?: AbortSignal) => Promise<void> = async () => {}

  async compare(from: DiskRef | undefined, to: DiskRef, options: CompareOptions): Promise<TreeComparison> {
    const files = await this.#changes(from, to, options)
    const sum = (lines: (file: ComparedFile) => number) => files.reduce((count, file) => count + lines(file), 0)
    return {
      files,
      addedLines: sum(({ addedLines }) => addedLines),
      removedLines: sum(({ removedLines }) => removedLines),
      isCut: false,
    }
  }

  async *patch(from: DiskRef, to: DiskRef, options: CompareOptions): AsyncGenerator<Uint8Array> {
    for (const { path } of await this.#changes(from, to, options)) {
      await this.before(options.signal)
      yield Buffer.from(`diff --git a/${path} b/${path}\n`)
      const [earlier, later] = [from, to].map((disk) => linesOf(this.#folder(disk, options.folder)[path]))
      yield Buffer.from([...earlier!.map((line) => `-${line}\n`), ...later!.map((line) => `+${line}\n`)].join(''))
    }
  }

  async readFolder(disk: DiskRef, folder: string): Promise<FolderFile[]> {
    return Object.entries(this.#folder(disk, folder)).map(([path, text]) => ({
      path,
      mode: 0o644,
      content: Buffer.from(text),
    }))
  }

  async uniqueBytes(checkpointIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
    await this.before()
    return new Map([...this.bytes].filter(([id]) => checkpointIds.includes(id)))
  }

  async #changes(from: DiskRef | undefined, to: DiskRef, { folder, signal }: CompareOptions): Promise<ComparedFile[]> {
    this.compared.push(`${from === undefined ? 'empty' : idOf(from)} ${idOf(to)}`)
    await this.before(signal)
    const [earlier, later] = [from === undefined ? {} : this.#folder(from, folder), this.#folder(to, folder)]
    const paths = [...new Set([...Object.keys(earlier), ...Object.keys(later)])].toSorted()
    return paths.flatMap((path): ComparedFile[] => {
      const [was, is] = [earlier[path], later[path]]
      if (was === is) return []
      const change = was === undefined ? 'added' : is === undefined ? 'deleted' : 'modified'
      return [{ path, change, isBinary: false, addedLines: linesOf(is).length, removedLines: linesOf(was).length }]
    })
  }

  #folder(disk: DiskRef, folder: string): Record<string, string> {
    const id = idOf(disk)
    if (this.gone.has(id)) throw new ServiceError('not_found', `the data of ${id} is gone`)
    const start = folder === '/' ? '/' : `${folder}/`
    const below = Object.entries(this.disks.get(id) ?? {}).filter(([path]) => path.startsWith(start))
    return Object.fromEntries(below.map(([path, text]) => [path.slice(start.length), text]))
  }
}

function idOf(disk: DiskRef): string {
  return 'checkpointId' in disk ? disk.checkpointId : disk.sandboxId
}

function linesOf(text: string | undefined): string[] {
  return (text ?? '').split('\n').filter((line) => line !== '')
}
