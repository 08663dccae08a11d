import { basename, posix } from 'node:path'
import type { Site } from './site.ts'

/**
 * Where a link of a page leads. `page`: to another page, or a heading; `title` is that page's. `outside`: to another site. `source`: to a file of the
 * repository that is no page, by its path. `none`: nowhere that a reader may be sent to, such as `javascript:`.
 */
export type Target =
  | { kind: 'page'; href: string; title: string | undefined }
  | { kind: 'outside'; href: string }
  | { kind: 'source'; path: string }
  | { kind: 'none' }

const outside = /^(?:https?:\/\/|mailto:)/i
const scheme = /^[^/?#]*:|^\/\/|^\\/

/** Resolves a link of the page of `file`, which is below `docs/`. */
export function targetOf(href: string, file: string, { pages }: Pick<Site, 'pages'>): Target {
  if (outside.test(href)) return { kind: 'outside', href }
  // Browsers leave control characters out of a scheme.
  // oxlint-disable-next-line no-control-regex
  if (scheme.test(href.replaceAll(/[\u0000-\u0020]/g, ''))) return { kind: 'none' }
  const [path = '', anchor] = href.split('#', 2)
  const hash = anchor === undefined ? '' : `#${anchor}`
  if (path === '') return { kind: 'page', href: hash, title: undefined }
  const target = posix.normalize(posix.join('docs', posix.dirname(file), path))
  const page = target.startsWith('docs/') ? pages.get(target.slice('docs/'.length)) : undefined
  if (page !== undefined) return { kind: 'page', href: page.path + hash, title: page.title }
  return target.startsWith('../') ? { kind: 'none' } : { kind: 'source', path: target }
}

/** Whether the text of a link is only the name of the file that it leads to. */
export function isFileName(text: string, href: string): boolean {
  return text === basename(href.split('#', 1)[0] ?? '')
}
