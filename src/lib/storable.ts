/** Whether the database can hold a text: what it cannot hold names nothing there. */
export function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed()
}
