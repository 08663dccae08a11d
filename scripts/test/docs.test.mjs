// What the documents name exists: files, headings, and the parts of the source that ARCHITECTURE, recipes and tables send a reader to.

import assert from 'node:assert/strict'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../../', import.meta.url))
const pages = globSync(['*.md', 'docs/**/*.md', 'sdk/*.md'], { cwd: root })
const read = (path) => readFileSync(join(root, path), 'utf8')

/** A page without its blocks of code. */
const prose = (path) => read(path).replaceAll(/^```.*?^```/gms, '')

const headings = (path) => [...prose(path).matchAll(/^#+ (.*)$/gm)].map(([, heading]) => heading.replaceAll('`', ''))

/** The anchors of a page, as GitHub makes them. */
function anchors(path) {
  const times = new Map()
  return headings(path).map((heading) => {
    const anchor = heading
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-')
    const before = times.get(anchor) ?? 0
    times.set(anchor, before + 1)
    return before ? `${anchor}-${before}` : anchor
  })
}

test('docs: each relative link leads to a file, and its anchor to a heading', () => {
  assert.ok(pages.length > 60, `${pages.length} pages`)
  const broken = []
  for (const page of pages) {
    for (const [, link] of prose(page).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(link)) continue
      const [path, anchor] = link.split('#')
      const target = path ? join(dirname(page), path) : page
      if (!existsSync(join(root, target)) || (anchor && !anchors(target).includes(anchor)))
        broken.push(`${page}: ${link}`)
    }
  }
  assert.deepEqual(broken, [])
})

test('docs: the index has every page of the rooms, and no page lies beside them', () => {
  const index = read('docs/README.md')
  const pagesOf = (pattern) => globSync(pattern, { cwd: join(root, 'docs') })
  assert.deepEqual(
    pagesOf('{use,operate,internals}/*.md').filter((page) => !index.includes(`](${page})`)),
    [],
  )
  assert.deepEqual(pagesOf('*.md').toSorted(), ['ARCHITECTURE.md', 'README.md'])
})

test('docs: pages and headings that sources name exist', () => {
  const sources = globSync(
    [
      '{src,test,scripts,deploy,sdk/src,guest/src,hostd/src,egress/src,sys/src,json/src}/**/*.{ts,mjs,rs,sh}',
      'deploy/**/Caddyfile',
    ],
    { cwd: root, exclude: ['sdk/src/api.ts'] },
  )
  const named = sources.flatMap((source) =>
    [...read(source).matchAll(/\bdocs\/[\w/-]+\.md\b(?:`? § ([^.,:;)*\n]+))?/g)].map(([match, heading]) => ({
      at: `${source}: ${match}`,
      page: match.split(/[` ]/)[0],
      heading: heading?.trim(),
    })),
  )
  assert.ok(named.length > 50, `${named.length} mentions`)
  const broken = named.filter(
    ({ page, heading }) =>
      !existsSync(join(root, page)) ||
      // A heading may be followed by more words of the sentence.
      (heading && !headings(page).some((one) => heading.startsWith(one))),
  )
  assert.deepEqual(
    broken.map(({ at }) => at),
    [],
  )
})

const files = globSync(
  '{src,sdk/src,dashboard/{src,docs},guest,hostd,egress,sys,json,test,scripts,deploy,docs,images,bin,.ci}/**/*',
  {
    cwd: root,
    exclude: ['**/node_modules', '**/target'],
    withFileTypes: true,
  },
).map((entry) => `/${relative(root, join(entry.parentPath, entry.name))}${entry.isDirectory() ? '/' : ''}`)

// A generated file is not in every tree.
if (!files.includes('/sdk/src/api.ts')) files.push('/sdk/src/api.ts')

/** Files that a page may mean by a path: a page leaves out folders that its text names. */
const meant = (path) => files.filter((file) => file.endsWith(`/${path}`)).map((file) => file.slice(1))

/** Paths of source files, and of folders. */
const pathsIn = (text) =>
  [...text.matchAll(/`((?:\w[\w.-]*|\.ci)\/[\w./-]*)`/g)]
    .map(([, path]) => path)
    .filter((path) => /\.(ts|rs|mjs|sh|md)$|^(src|test|guest|hostd|egress|sys|json|scripts)\/.*\/$/.test(path))

test('docs: paths of the source exist, and names that a page places in a file are in it', () => {
  const broken = []
  let found = 0
  for (const page of pages.filter((one) => one !== 'CHANGELOG.md')) {
    const text = prose(page)
    for (const path of pathsIn(text)) {
      found += 1
      if (meant(path).length === 0) broken.push(`${page}: ${path}`)
    }
    for (const [, name, path] of text.matchAll(/`([\w#.]+)`(?: \([^)]*\))? (?:in|of) `([\w./-]+\.\w+)`/g)) {
      const texts = meant(path).map(read)
      const has = texts.some((one) => one.includes(name.split('.').at(-1)))
      if (texts.length > 0 && !has) broken.push(`${page}: ${name} in ${path}`)
    }
  }
  assert.ok(found > 400, `${found} paths`)
  assert.deepEqual(broken, [])
})

/** The first cells of the rows of a page's tables. */
const firstCells = (page) => [...prose(page).matchAll(/^\| ([^|]+) \|/gm)].map(([, cell]) => cell)

test('docs: troubleshooting quotes messages that the server has', () => {
  const source = globSync('src/**/*.ts', { cwd: root, exclude: ['src/**/*.test.ts'] })
    .map(read)
    .join('\n')
  const messages = firstCells('docs/operate/troubleshooting.md')
    .flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, message]) => message))
    .filter((message) => message.includes(' ') && !message.startsWith('npm run '))
  assert.ok(messages.length > 30, `${messages.length} messages`)
  const absent = messages.filter((message) => message.split('…').some((part) => !source.includes(part)))
  assert.deepEqual(absent, [])
})

test('docs: the table of changes has its rows, and those of ARCHITECTURE are sorted and short', () => {
  assert.ok(firstCells('docs/internals/changes.md').length > 12)
  const [, table] = prose('docs/ARCHITECTURE.md').split('## Where to change what')
  const rows = table.split('\n').filter((line) => /^\| (?!to )/.test(line))
  assert.ok(rows.length > 25, `${rows.length} rows`)
  assert.deepEqual(
    rows,
    rows.toSorted((one, other) => one.localeCompare(other)),
  )
  assert.deepEqual(
    rows.filter((row) => row.length > 250),
    [],
  )
})
