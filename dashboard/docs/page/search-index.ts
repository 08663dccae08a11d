import MiniSearch from 'minisearch'
import { excerptOf, type Part } from './excerpt.ts'

export interface Result {
  href: string
  title: string
  /** Empty for the start of a page. */
  heading: string
  excerpt: Part[]
}

export interface SearchIndex {
  /** The sections that have all words of the query or words that begin so or are nearly so, the best first. */
  find(query: string): Result[]
}

/** Address, title of the page, heading, text. */
type Found = [href: string, title: string, heading: string, text: string]

/** Loads the sections of all pages and indexes them. Throws when the server does not answer. */
export async function loadIndex(): Promise<SearchIndex> {
  const answer = await fetch('/docs/assets/search.json')
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`)
  const sections = (await answer.json()) as Found[]
  const index = new MiniSearch<{ id: number; title: string; heading: string; text: string }>({
    fields: ['heading', 'title', 'text'],
    tokenize: (text) => text.split(/[^\p{L}\p{N}]+/u),
    searchOptions: {
      combineWith: 'AND',
      boost: { heading: 4, title: 2 },
      prefix: (term) => term.length > 1,
      fuzzy: (term) => (term.length > 4 ? 0.2 : false),
      // The start of a page is what its title promises.
      boostDocument: (id) => (sections[id as number]?.[2] === '' ? 1.5 : 1),
    },
  })
  index.addAll(sections.map(([, title, heading, text], id) => ({ id, title, heading, text })))
  return {
    find: (query) =>
      index.search(query).map(({ id, terms }) => {
        const [href, title, heading, text] = sections[id as number]!
        return { href, title, heading, excerpt: excerptOf(text, terms) }
      }),
  }
}
