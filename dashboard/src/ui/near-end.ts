/** How many rows before the end of what is loaded the next page is asked for. */
const rowsAhead = 25

/** For `onView` of a table: calls `load` when the rows in view come near the end of those that are loaded. */
export function whenNearEnd<Row>(rows: readonly Row[], load: () => void): (seen: readonly Row[]) => void {
  return (seen) => {
    const last = seen.at(-1)
    if (last !== undefined && rows.lastIndexOf(last) >= rows.length - rowsAhead) load()
  }
}
