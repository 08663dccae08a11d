/** Draws the table into docs/ARCHITECTURE.md: `npm run imports`. A test compares. */
import { readFile, writeFile } from 'node:fs/promises'
import { pathToFileURL } from 'node:url'
import { rowOf, table, top } from './table.mjs'

const page = new URL('../../docs/ARCHITECTURE.md', import.meta.url)
const marks = /(<!-- imports: npm run imports -->\n```\n)[^`]*(```\n)/

/** The page with the present drawing. Throws for a table with a cycle. */
export function drawn(text) {
  if (!marks.test(text)) throw new Error('docs/ARCHITECTURE.md has no place for the drawing')
  const whole = (name) => name.split('/')[0]
  const inside = Object.entries(table).filter(([row]) => row.startsWith('runtime'))
  const rows = [...Object.entries(table), [top, Object.keys(table)]]
  const picture = [
    ...linesOf(rows, (name) => (name.startsWith('http') ? name : whole(name)), 'src/'),
    '',
    ...linesOf(inside, (name) => (name === 'runtime' ? 'command.ts …' : name.replace('runtime/', '')), 'src/runtime/'),
  ]
  return text.replace(marks, (_, before, after) => `${before}${picture.join('\n')}\n${after}`)
}

/** One line a level, the highest first: who imports another is in a line above it. */
function linesOf(rows, nameOf, title) {
  const below = new Map()
  for (const [row] of rows) below.set(nameOf(row), new Set())
  for (const [row, allowed] of rows) {
    for (const target of allowed.map((name) => nameOf(rowOf(name) ?? name))) {
      if (below.has(target) && target !== nameOf(row)) below.get(nameOf(row)).add(target)
    }
  }
  const levels = new Map()
  const levelOf = (name, path = []) => {
    if (path.includes(name)) throw new Error(`the table has a cycle: ${[...path, name].join(' → ')}`)
    const level =
      levels.get(name) ?? 1 + Math.max(-1, ...[...below.get(name)].map((one) => levelOf(one, [...path, name])))
    levels.set(name, level)
    return level
  }
  const lines = []
  for (const name of below.keys()) (lines[levelOf(name)] ??= []).push(name)
  return lines.toReversed().map((names, index) => `${(index === 0 ? title : '').padEnd(14)}${names.join('   ')}`)
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href)
  await writeFile(page, drawn(await readFile(page, 'utf8')))
