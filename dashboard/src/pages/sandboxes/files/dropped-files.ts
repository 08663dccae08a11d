/** A file of the reader's machine, and where it goes below the folder that gets it. An empty folder has no file. */
export interface LocalFile {
  /** Names of folders, then of itself. */
  parts: readonly string[]
  file: File | undefined
}

/** What a folder of the reader's machine may hold to be uploaded at once. */
export const localFilesMax = 10_000

/** Files that were chosen, with their folders where the browser tells them. */
export function chosenFiles(list: FileList): LocalFile[] {
  return bounded(Array.from(list, (file) => ({ parts: safeParts(file.webkitRelativePath || file.name), file })))
}

/** Files and folders that were dropped. Call it while the event is handled: the browser forgets them behind it. */
export async function droppedFiles(transfer: DataTransfer): Promise<LocalFile[]> {
  const items = Array.from(transfer.items).filter(({ kind }) => kind === 'file')
  const dropped = items.map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }))
  const found: LocalFile[] = []
  for (const { entry, file } of dropped) {
    if (entry !== null) await collect(entry, [], found)
    // Not from a disk: an image of another page, say.
    else if (file !== null) found.push({ parts: safeParts(file.name), file })
  }
  return found
}

async function collect(entry: FileSystemEntry, above: readonly string[], found: LocalFile[]): Promise<void> {
  const parts = [...above, ...safeParts(entry.name)]
  if (isFile(entry)) {
    const file = await new Promise<File>((resolve, reject) => entry.file(resolve, reject))
    found.push({ parts, file })
    bounded(found)
    return
  }
  if (!isFolder(entry)) return
  const before = found.length
  const reader = entry.createReader()
  // A call gives a part of them, and none at the end.
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject))
    if (some.length === 0) break
    for (const one of some) await collect(one, parts, found)
  }
  if (found.length === before) found.push({ parts, file: undefined })
}

function bounded(files: LocalFile[]): LocalFile[] {
  if (files.length > localFilesMax)
    throw new Error(`More than ${localFilesMax} files at once. Upload an archive and unpack it, or use atoll cp -r.`)
  return files
}

/** No way out of the folder that gets them. */
function safeParts(path: string): string[] {
  return path.split('/').filter((part) => part !== '' && part !== '.' && part !== '..')
}

function isFile(entry: FileSystemEntry): entry is FileSystemFileEntry {
  return entry.isFile
}

function isFolder(entry: FileSystemEntry): entry is FileSystemDirectoryEntry {
  return entry.isDirectory
}
