import gitdiff from 'gitdiff-parser'
import type { Change, Hunk } from 'gitdiff-parser'
import type { PatchFile, PatchIndex } from './patch-index.ts'
import { visibleLine } from '../lib/visible.ts'

/** The changes of one file, in parts that are drawn one by one. */
export interface FilePatch {
  /** `content` of one that goes on with the hunk before it is empty. */
  parts: readonly Hunk[]
  /** What is not shown, or not seen in the lines. */
  notes: readonly string[]
}

/** What is read of one file. */
const bytesMax = 4 * 1024 * 1024
const linesMax = 50_000
const lineCharactersMax = 2000
/** A part ends at the next line that both sides have, or at the latest with so many. */
const partLines = { wanted: 80, max: 200 }
/** The line with which the server ends a patch that is too long. */
const serversEnd = /\n\\ The patch ends here[^\n]*\n?$/
/** Stands for the head of the file, whose names the parser need not understand. */
const head = 'diff --git a/file b/file\n--- a/file\n+++ b/file'

/** Reads the changes of a file. At most 4 MiB and 50 000 lines of it, and 2000 characters of a line; what is left out is in the notes. */
export async function readFilePatch({ bytes }: PatchIndex, { start, end }: PatchFile): Promise<FilePatch> {
  const isShort = end - start <= bytesMax
  const slice = await bytes.slice(start, Math.min(end, start + bytesMax)).text()
  const text = slice.replace(serversEnd, '')
  const hunksAt = text.indexOf('\n@@ ')
  if (hunksAt === -1) return { parts: [], notes: [] }
  const hunks = text.slice(hunksAt, isShort ? undefined : text.lastIndexOf('\n'))
  const [file] = gitdiff.parse(head + hunks)
  if (file === undefined) return { parts: [], notes: [] }
  const { shown, isCut } = firstLines(file.hunks)
  const notes = [
    isShort && !isCut ? undefined : 'There is more than is shown here: the change of this file is too long.',
    file.oldEndingNewLine ? undefined : 'Before, the last line had no newline at its end.',
    file.newEndingNewLine ? undefined : 'The last line has no newline at its end.',
  ]
  return { parts: shown.flatMap(partsOf), notes: notes.filter((note) => note !== undefined) }
}

function firstLines(hunks: readonly Hunk[]): { shown: Hunk[]; isCut: boolean } {
  let left = linesMax
  const shown: Hunk[] = []
  for (const hunk of hunks) {
    if (left <= 0) return { shown, isCut: true }
    const changes = hunk.changes.slice(0, left)
    left -= hunk.changes.length
    shown.push({ ...hunk, changes })
  }
  return { shown, isCut: left < 0 }
}

function partsOf(hunk: Hunk): Hunk[] {
  const parts: Hunk[] = []
  let changes: Change[] = []
  const close = () => {
    if (changes.length === 0) return
    parts.push({ ...hunk, content: parts.length === 0 ? shortLine(hunk.content) : '', changes })
    changes = []
  }
  for (const change of hunk.changes) {
    const isWhole = changes.length >= partLines.wanted && change.type === 'normal'
    if (isWhole || changes.length >= partLines.max) close()
    changes.push({ ...change, content: shortLine(change.content) })
  }
  close()
  return parts
}

function shortLine(line: string): string {
  if (line.length <= lineCharactersMax) return visibleLine(line)
  return `${visibleLine(line.slice(0, lineCharactersMax))}… (${line.length - lineCharactersMax} more characters)`
}
