import { hasColors, hint, note, write, writeLine } from './output.ts'
import { type Compared, patchText, statText } from './patch-output.ts'

/** Prints a unified diff. */
export async function writePatch(patch: AsyncIterable<Uint8Array>): Promise<void> {
  let isEmpty = true
  for await (const part of patchText(patch, { isTerminal: process.stdout.isTTY, hasColors: hasColors() })) {
    isEmpty = false
    await write(part)
  }
  if (isEmpty) hint('nothing differs')
}

/** Prints the files of a comparison with their lines. */
export async function writeStat(compared: Compared): Promise<void> {
  const { isTTY: isTerminal, columns } = process.stdout
  const shown = statText(compared, isTerminal ? { widthMax: columns || 80, hasColors: hasColors() } : {})
  if (shown === '') return hint('nothing differs')
  await writeLine(shown)
  if (compared.isCut) note(`these are the first ${compared.files.length} files; there are more`)
}
