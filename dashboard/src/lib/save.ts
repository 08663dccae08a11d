/** Gives a text to the reader as a file. */
export function saveText(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }))
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  // The browser has taken the bytes by the next task.
  setTimeout(() => URL.revokeObjectURL(url), 0)
}
