import type { Section } from './markdown.ts'
import type { Page } from './site.ts'

/** A section of a page as the search finds it: address, title of the page, heading (empty for the start of the page), text. */
export type Found = readonly [href: string, title: string, heading: string, text: string]

/** The sections of a page that are searched: those for who calls or runs Atoll. */
export function foundIn(page: Page, sections: readonly Section[]): Found[] {
  if (!/^(?:use|operate)\//.test(page.file)) return []
  return sections.map(({ id, depth, text, body }) => {
    const isStart = depth === 1
    return [isStart ? page.path : `${page.path}#${id}`, page.title, isStart ? '' : text, plain(body)] as const
  })
}

function plain(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim()
}
