import { columns, writeJson, writeLine } from './output.ts'
import type { Flags } from './settings.ts'

export interface ListFlags extends Flags {
  quiet?: boolean
}

/** The titles of a list, and what stands below each. The first column names the item: `--quiet` prints it alone. */
type Columns<Item> = Readonly<Record<string, (item: Item) => unknown>>

/** Prints a list of the API as columns, as names alone, or as JSON. */
export async function writeList<Item>(
  items: readonly Item[],
  { json: isJson = false, quiet: isQuiet = false }: ListFlags,
  shown: Columns<Item>,
): Promise<void> {
  if (isJson) return await writeJson(items)
  const cells = Object.values(shown)
  if (isQuiet) for (const item of items) await writeLine(String(cells[0]?.(item)))
  else {
    const rows = items.map((item) => cells.map((cell) => cell(item)))
    await writeLine(columns(Object.keys(shown), rows))
  }
}
