import { escapeHtml } from '../../src/lib/html.ts'
import type { Section } from './markdown.ts'
import { scopesOf } from './scopes.ts'
import type { Group, Page, Site } from './site.ts'

/** What stands in the middle of a document. */
export interface Body {
  html: string
  sections: readonly Section[]
}

/** The addresses of what all pages share. */
export const assets = '/docs/assets'

/** The complete document of a page. */
export function pageDocument(page: Page, body: Body, site: Site): string {
  const [title, ...headings] = body.sections
  const contents = headings.filter(({ depth }) => depth === 2 || depth === 3)
  const makesKey = body.html.includes('data-fill="key"')
  const article = `<main id="content"${makesKey ? ` data-scopes="${scopesOf(page.file).join(' ')}"` : ''}>
<article>
${trail(page, site)}
${body.html}</article>
${neighbours(page, site)}
<footer><p>${sourceOf(page)}</p></footer>
</main>`
  const isIndex = page === site.index
  return frame({
    title: isIndex ? 'Atoll documentation' : `${title?.text ?? page.title} · Atoll documentation`,
    navigation: navigation(page, site),
    article,
    aside: contents.length > 1 ? contentsOf(contents) : '',
  })
}

/** What a browser gets for an address below `/docs` that is no page. */
export function missingDocument(site: Site): string {
  const article = `<main id="content"><article>
<h1>No such page</h1>
<p>The documentation has no page at this address. The list of pages and the search lead to those that it has; so does <a href="/docs">its index</a>.</p>
</article></main>`
  return frame({
    title: 'No such page · Atoll documentation',
    navigation: navigation(undefined, site),
    article,
    aside: '',
  })
}

interface Frame {
  title: string
  navigation: string
  article: string
  aside: string
}

/** Both lists are popovers on a narrow screen, which open without a script. */
function frame({ title, navigation: list, article, aside }: Frame): string {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(title)}</title>
<link rel="icon" href="${assets}/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="${assets}/docs.css">
<script src="${assets}/theme.js"></script>
<script type="module" src="${assets}/docs.js"></script>
</head><body>
<a class="skip" href="#content">To the text</a>
<header>
<button type="button" class="narrow" popovertarget="pages">Pages</button>
<a class="brand" href="/docs"><svg viewBox="0 0 32 32" width="20" height="20" aria-hidden="true"><path d="M25.6 9.4A11.5 11.5 0 1 1 16 4.5"/></svg>Atoll <span>documentation</span></a>
<search class="search" hidden><input id="search" type="search" maxlength="200" placeholder="Search" aria-label="Search the documentation" aria-controls="results" aria-keyshortcuts="/ Control+K" autocomplete="off" spellcheck="false"><kbd aria-hidden="true">/</kbd><div id="results" hidden></div></search>
${aside === '' ? '' : '<button type="button" class="narrow" popovertarget="contents">On this page</button>'}
<a class="wide" href="/docs/api">API reference</a>
<a class="wide" href="/">Dashboard</a>
</header>
<div class="columns">
<nav id="pages" popover aria-label="Pages">
${list}
</nav>
${article}
${aside}
</div>
</body></html>
`
}

function navigation(current: Page | undefined, site: Site): string {
  const link = (page: Page) =>
    `<li><a href="${page.path}"${page === current ? ' aria-current="page"' : ''}>${escapeHtml(page.title)}</a></li>`
  const group = ({ title, folder, pages }: Group) => {
    const list = `<ul>${pages.map(link).join('')}</ul>`
    // Those who call or run Atoll rarely need what is for those who change it.
    if (folder !== 'internals/') return `<h2>${escapeHtml(title)}</h2>${list}`
    const isOpen = current?.file.startsWith(folder) === true
    return `<details${isOpen ? ' open' : ''}><summary>${escapeHtml(title)}</summary>${list}</details>`
  }
  const first = `<ul>${link(site.index)}<li><a href="/docs/api">API reference</a></li><li class="narrow"><a href="/">Dashboard</a></li></ul>\n`
  return first + site.groups.map(group).join('\n')
}

/** The folders above a page. */
function trail({ file }: Page, { pages, index }: Site): string {
  if (file === index.file) return ''
  const parts = file.replace(/\/$/, '').split('/').slice(0, -1)
  const above = parts.map((_, depth) => pages.get(`${parts.slice(0, depth + 1).join('/')}/`))
  const links = [index, ...above.filter((page) => page !== undefined)].map(
    ({ path, title }) => `<li><a href="${path}">${escapeHtml(title)}</a></li>`,
  )
  return `<nav class="trail" aria-label="Folders"><ol>${links.join('')}</ol></nav>`
}

function neighbours(page: Page, { index, groups }: Site): string {
  const sequence = [index, ...groups.flatMap(({ pages }) => pages)]
  const at = sequence.indexOf(page)
  if (at === -1) return ''
  const link = (neighbour: Page | undefined, name: string, label: string) =>
    neighbour === undefined
      ? ''
      : `<a rel="${name}" href="${neighbour.path}"><span>${label}</span>${escapeHtml(neighbour.title)}</a>`
  return `<nav class="neighbours" aria-label="Previous and next page">${link(sequence[at - 1], 'prev', 'Previous')}${link(sequence[at + 1], 'next', 'Next')}</nav>`
}

function sourceOf({ file }: Page): string {
  return `This page is <code>docs/${escapeHtml(file)}</code> in the repository.`
}

function contentsOf(headings: readonly Section[]): string {
  const items = headings.map(
    ({ id, depth, text }) => `<li class="depth-${depth}"><a href="#${escapeHtml(id)}">${escapeHtml(text)}</a></li>`,
  )
  return `<nav id="contents" popover aria-labelledby="contents-title">
<h2 id="contents-title">On this page</h2>
<ol>${items.join('\n')}</ol>
</nav>`
}
