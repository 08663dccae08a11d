const escapes: Record<string, number> = { a: 7, b: 8, t: 9, n: 10, v: 11, f: 12, r: 13, '"': 34, '\\': 92 }

/**
 * A path of a patch without its quotes (git-config(1), `core.quotePath`): `"a\303\244"` is `aä`. What follows the closing quote is left out. A path
 * without quotes is as it is. Bytes that are no UTF-8 are replaced.
 */
export function unquoted(path: string): string {
  if (!path.startsWith('"')) return path
  const bytes: number[] = []
  for (let at = 1; at < path.length && path[at] !== '"'; at += 1) {
    const character = path[at] ?? ''
    if (character !== '\\') {
      bytes.push(...new TextEncoder().encode(character))
      continue
    }
    const [octal] = /^[0-3][0-7]{2}/.exec(path.slice(at + 1, at + 4)) ?? []
    if (octal === undefined) {
      at += 1
      bytes.push(escapes[path[at] ?? ''] ?? 63)
    } else {
      at += 3
      bytes.push(Number.parseInt(octal, 8))
    }
  }
  return new TextDecoder().decode(new Uint8Array(bytes))
}
