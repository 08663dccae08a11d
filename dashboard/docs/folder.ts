import { escapeHtml } from '../../src/lib/html.ts'
import type { Body } from './document.ts'
import type { Page, Site } from './site.ts'

/** The list of what is in a folder, in the order of the index; what the index does not name follows by its file. */
export function folderBody(folder: Page, { pages, groups }: Site): Body {
  const named = groups.flatMap((group) => group.pages)
  const rank = (page: Page) => (named.includes(page) ? named.indexOf(page) : named.length)
  const inside = [...pages.values()]
    .filter(({ file }) => isDirectlyIn(file, folder.file))
    .toSorted((one, other) => rank(one) - rank(other) || one.file.localeCompare(other.file))
  const item = ({ path, title, about }: Page) =>
    `<li><a href="${path}">${escapeHtml(title)}</a>${about === '' ? '' : `<span>${escapeHtml(about)}</span>`}</li>`
  const html = `<h1>${escapeHtml(folder.title)}</h1>\n<ul class="list">${inside.map(item).join('\n')}</ul>\n`
  return { html, sections: [{ id: '', depth: 1, text: folder.title, body: '' }] }
}

function isDirectlyIn(file: string, folder: string): boolean {
  if (!file.startsWith(folder) || file === folder) return false
  return !file.slice(folder.length).replace(/\/$/, '').includes('/')
}
