import { globSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { marked, type Token, type Tokens } from 'marked'
import { textOf } from './text.ts'

/** A page of the documentation. */
export interface Page {
  /** Its file below `docs/`, such as `use/api.md`; of a list of a folder that folder, such as `decisions/`. */
  file: string
  /** Its address, such as `/docs/use/api`. */
  path: string
  title: string
  /** What the index says of it; empty where it says nothing. */
  about: string
  /** Markdown; undefined for the list of a folder. */
  text: string | undefined
}

/** Pages under one heading of the index, in its order. */
export interface Group {
  title: string
  /** The folder that the heading links to, such as `use/`; undefined where it links to none. */
  folder: string | undefined
  pages: Page[]
}

export interface Site {
  /** By file. */
  pages: ReadonlyMap<string, Page>
  index: Page
  groups: readonly Group[]
}

const indexFile = 'README.md'

/** Reads the documentation below this folder. Order and descriptions are those of its README. Throws when there is none. */
export function readSite(folder: string): Site {
  const files = globSync('**/*.md', { cwd: folder }).toSorted()
  const texts = new Map(files.map((file) => [file, readFileSync(join(folder, file), 'utf8')]))
  const readme = texts.get(indexFile)
  if (readme === undefined) throw new Error(`${folder} has no ${indexFile}, which is the index of the pages`)
  const entries = indexEntries(marked.lexer(readme))
  const abouts = new Map(entries.flatMap(({ links }) => links.map(({ file, about }) => [file, about])))
  const pages = new Map<string, Page>()
  const add = (file: string, title: string, text?: string) => {
    const [, number] = /^decisions\/(\d+)-/.exec(file) ?? []
    const about = abouts.get(file) ?? (number === undefined ? '' : `Decision ${number}`)
    pages.set(file, { file, path: pathOf(file), title, about, text })
  }
  for (const [file, text] of texts) add(file, titleOf(text) ?? basename(file, '.md'), text)
  for (const name of new Set(files.flatMap((file) => foldersAbove(file)))) add(name, folderTitle(name))
  const groups = entries.map(({ title, folder: of, links }) => ({
    title: of === undefined ? title : folderTitle(of),
    folder: of,
    pages: links.map(({ file }) => pages.get(file)).filter((page) => page !== undefined),
  }))
  return { pages, index: pages.get(indexFile)!, groups: groups.filter((group) => group.pages.length > 0) }
}

/** The address of a file or a folder below `docs/`. */
function pathOf(file: string): string {
  if (file === indexFile) return '/docs'
  return `/docs/${file.replace(/\.md$|\/$/, '').toLowerCase()}`
}

function foldersAbove(file: string): string[] {
  const folder = dirname(file)
  return folder === '.' ? [] : [`${folder}/`, ...foldersAbove(folder)]
}

function folderTitle(folder: string): string {
  const name = basename(folder).replaceAll('-', ' ')
  return name.charAt(0).toUpperCase() + name.slice(1)
}

function titleOf(markdown: string): string | undefined {
  const heading = marked.lexer(markdown).find((token) => token.type === 'heading')
  return heading && textOf((heading as Tokens.Heading).tokens).trim()
}

interface Entry {
  title: string
  folder: string | undefined
  links: { file: string; about: string }[]
}

/** The headings of the index below its title, with what the tables under each link to. A second link to a page is left out. */
function indexEntries(tokens: readonly Token[]): Entry[] {
  const entries: Entry[] = []
  const seen = new Set<string>()
  for (const token of tokens) {
    if (token.type === 'heading' && (token as Tokens.Heading).depth > 1) {
      const { tokens: parts } = token as Tokens.Heading
      const [folder] = linksOf(parts)
      entries.push({ title: textOf(parts), folder, links: [] })
    }
    if (token.type !== 'table') continue
    for (const [names, what] of (token as Tokens.Table).rows) {
      const files = linksOf(names?.tokens ?? [])
      const abouts = textOf(what?.tokens).split('; ')
      for (const [index, file] of files.entries()) {
        // A row of two pages describes the one and then the other.
        const about = abouts.length === files.length ? abouts[index]! : abouts.join('; ')
        if (!seen.has(file)) entries.at(-1)?.links.push({ file, about })
        seen.add(file)
      }
    }
  }
  return entries
}

function linksOf(tokens: readonly Token[]): string[] {
  return tokens.filter((token): token is Tokens.Link => token.type === 'link').map(({ href }) => href)
}
