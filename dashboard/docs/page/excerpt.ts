export interface Part {
  text: string
  isMatch: boolean
}

const beforeMax = 50
const lengthMax = 160

/** The text around the first of these words, cut at words, with the words marked. A word has letters and digits alone. */
export function excerptOf(text: string, words: readonly string[]): Part[] {
  const longestFirst = words.toSorted((one, other) => other.length - one.length)
  const pattern = words.length === 0 ? undefined : new RegExp(`(?<![\\p{L}\\p{N}])(?:${longestFirst.join('|')})`, 'giu')
  const first = pattern === undefined ? -1 : text.search(pattern)
  const start = first <= beforeMax ? 0 : text.indexOf(' ', first - beforeMax) + 1
  const end = text.length <= start + lengthMax ? text.length : text.lastIndexOf(' ', start + lengthMax)
  const cut = text.slice(start, end > start ? end : start + lengthMax)
  const parts: Part[] = start > 0 ? [{ text: '… ', isMatch: false }] : []
  let at = 0
  for (const { 0: match, index } of pattern === undefined ? [] : cut.matchAll(pattern)) {
    if (index > at) parts.push({ text: cut.slice(at, index), isMatch: false })
    parts.push({ text: match, isMatch: true })
    at = index + match.length
  }
  if (at < cut.length) parts.push({ text: cut.slice(at), isMatch: false })
  if (start + cut.length < text.length) parts.push({ text: ' …', isMatch: false })
  return parts
}
