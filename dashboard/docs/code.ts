import hljs from 'highlight.js/lib/core'
import bash from 'highlight.js/lib/languages/bash'
import dockerfile from 'highlight.js/lib/languages/dockerfile'
import http from 'highlight.js/lib/languages/http'
import ini from 'highlight.js/lib/languages/ini'
import javascript from 'highlight.js/lib/languages/javascript'
import json from 'highlight.js/lib/languages/json'
import python from 'highlight.js/lib/languages/python'
import typescript from 'highlight.js/lib/languages/typescript'
import xml from 'highlight.js/lib/languages/xml'
import { escapeHtml } from '../../src/lib/html.ts'

const languages = { bash, dockerfile, http, ini, javascript, json, python, typescript, xml }
for (const [name, language] of Object.entries(languages)) hljs.registerLanguage(name, language)

/** A frame or an arrow of a drawing: such a block is set so closely that lines join. */
const drawn = /[\u2500-\u259f\u25b2\u25ba\u25bc\u25c4]/

/** What the page's script replaces in an example: by the address of this server, and by a key when the reader makes one. */
const placeholders =
  /\$ATOLL_URL\b|\$\{ATOLL_URL\}|http:\/\/127\.0\.0\.1:4100\b|\$ATOLL_API_KEY\b|\$\{ATOLL_API_KEY\}|atoll_…/g

/** A block of code as HTML. Colours are classes of highlight.js; the language of the fence may be any text. */
export function codeBlock(text: string, fence = ''): string {
  const [name = ''] = fence.trim().split(/\s/, 1)
  const isKnown = hljs.getLanguage(name) !== undefined
  const code = isKnown ? hljs.highlight(text, { language: name, ignoreIllegals: true }).value : escapeHtml(text)
  const isDrawing = !isKnown && drawn.test(text)
  const classes = isDrawing ? `code drawing ${widthClass(text)}` : 'code'
  return `<div class="${classes}"><pre><code>${withPlaceholders(code)}</code></pre></div>\n`
}

/** By it the style sets a drawing so small that it fits the page: a class, since the policy of the pages forbids styles in markup. */
function widthClass(text: string): string {
  const columns = Math.max(...text.split('\n').map((line) => line.length))
  return `columns-${Math.min(160, Math.max(80, Math.ceil(columns / 10) * 10))}`
}

/** Wraps placeholders in the text of this HTML, and leaves its tags alone. */
function withPlaceholders(html: string): string {
  return html
    .split(/(<[^>]*>)/)
    .map((part, index) => (index % 2 === 1 ? part : part.replaceAll(placeholders, placeholder)))
    .join('')
}

function placeholder(text: string): string {
  const what = text.includes('URL') || text.startsWith('http') ? 'address' : 'key'
  return `<span data-fill="${what}">${text}</span>`
}
