import { Marked, Renderer, type RendererObject, type Token, type Tokens } from 'marked'
import { escapeHtml } from '../../src/lib/html.ts'
import { codeBlock } from './code.ts'
import { isFileName, targetOf } from './links.ts'
import type { Site } from './site.ts'
import { Slugs } from './slug.ts'
import { textOf } from './text.ts'

export interface Heading {
  id: string
  /** 1 to 6. */
  depth: number
  text: string
}

/** A heading with what stands under it, up to the next one, as text. */
export interface Section extends Heading {
  body: string
}

export interface Article {
  html: string
  /** The first one has the title of the page. */
  sections: Section[]
}

/** Renders a page. Its markup is only what markdown makes: HTML in it is shown as text, and comments are left out. */
export function renderMarkdown(text: string, { file, site }: { file: string; site: Site }): Article {
  const ids = new Map<Token, string>()
  const marked = new Marked({ gfm: true, renderer: rendererFor(file, site, ids) })
  const tokens = marked.lexer(text)
  const sections: Section[] = []
  const slugs = new Slugs()
  for (const token of tokens) {
    if (token.type === 'heading') {
      const { depth, tokens: parts } = token as Tokens.Heading
      const heading = textOf(parts).trim()
      const id = slugs.next(heading)
      ids.set(token, id)
      sections.push({ id, depth, text: heading, body: '' })
      continue
    }
    const last = sections.at(-1)
    if (last !== undefined) last.body += textOf([token])
  }
  return { html: marked.parser(tokens), sections }
}

/** Characters of a piece of code that stays on one line. */
const shortMax = 20

function rendererFor(file: string, site: Site, ids: ReadonlyMap<Token, string>): RendererObject {
  return {
    html({ text, block }) {
      const shown = escapeHtml(text.replaceAll(/<!--.*?-->/gs, ''))
      return block && shown.trim() !== '' ? `<p>${shown}</p>\n` : shown
    },
    heading(token) {
      const { depth, tokens } = token
      const id = escapeHtml(ids.get(token) ?? '')
      const inner = this.parser.parseInline(tokens)
      // A heading inside of a list or a quote has none.
      if (id === '') return `<h${depth}>${inner}</h${depth}>\n`
      if (depth === 1) return `<h1 id="${id}">${inner}</h1>\n`
      const label = escapeHtml(`Link to “${textOf(tokens).trim()}”`)
      return `<div class="heading"><h${depth} id="${id}">${inner}</h${depth}><a class="anchor" href="#${id}" aria-label="${label}"></a></div>\n`
    },
    code({ text, lang }) {
      return codeBlock(text, lang)
    },
    codespan({ text }) {
      // A line may break inside of a longer one alone.
      const isShort = text.length <= shortMax
      return `<code${isShort ? ' class="short"' : ''}>${escapeHtml(text)}</code>`
    },
    tablecell(token) {
      const isEmpty = token.header && token.tokens.length === 0
      return isEmpty ? '<td></td>\n' : Renderer.prototype.tablecell.call(this, token)
    },
    table(token) {
      return `<div class="table">${Renderer.prototype.table.call(this, token)}</div>\n`
    },
    link({ href, tokens }) {
      const inner = this.parser.parseInline(tokens)
      const target = targetOf(href, file, site)
      switch (target.kind) {
        case 'page': {
          const isName = target.title !== undefined && isFileName(textOf(tokens), href)
          return `<a href="${escapeHtml(target.href)}">${isName ? escapeHtml(target.title!) : inner}</a>`
        }
        case 'outside':
          return `<a href="${escapeHtml(target.href)}" rel="noopener noreferrer">${inner}</a>`
        case 'source': {
          const path = escapeHtml(target.path)
          const isName = isFileName(textOf(tokens), href)
          return isName ? `<code>${path}</code>` : `${inner} (<code>${path}</code> in the repository)`
        }
        case 'none':
          return inner
      }
    },
    image({ text }) {
      return escapeHtml(text)
    },
  }
}
