import assert from 'node:assert/strict'
import { test } from 'node:test'
import { targetOf } from './links.ts'
import { renderMarkdown } from './markdown.ts'
import type { Page, Site } from './site.ts'

const page = (file: string, path: string, title: string): Page => ({ file, path, title, about: '', text: '' })
const index = page('README.md', '/docs', 'Documentation')
const known = [index, page('use/api.md', '/docs/use/api', 'The HTTP API'), page('use/', '/docs/use', 'Use')]
const site: Site = { pages: new Map(known.map((one) => [one.file, one])), index, groups: [] }
const render = (text: string) => renderMarkdown(text, { file: 'use/sdk.md', site })
const html = (text: string) => render(text).html.trim()

/** Elements and attributes of hostile markdown, which may only be those of markdown itself. */
function markupOf(rendered: string): string[] {
  return [...rendered.matchAll(/<(\/?[^\s>]+)([^>]*)>/g)].map(([, name = '', rest = '']) =>
    [name, ...[...rest.matchAll(/([^\s="]+)(?:="[^"]*")?/g)].map(([, attribute]) => attribute)].join(' '),
  )
}

test('docs markdown: HTML is shown as text, and comments are left out', () => {
  assert.equal(html('<script>alert(1)</script>'), '<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>')
  assert.equal(html('a <b onclick="x">b</b>'), '<p>a &lt;b onclick=&quot;x&quot;&gt;b&lt;/b&gt;</p>')
  assert.equal(html('<!-- note -->\n\ntext'), '<p>text</p>')
  assert.equal(html('<!-- a --><img src=x onerror=alert(1)>'), '<p>&lt;img src=x onerror=alert(1)&gt;</p>')
})

const hostile = [
  '<img src=x onerror=alert(1)>',
  '<svg/onload=alert(1)>',
  '[x](javascript:alert(1))',
  '[x](JaVaScRiPt:alert(1))',
  '[x](java\tscript:alert(1))',
  '[x](&#106;avascript:alert(1))',
  '[x](data:text/html,<script>alert(1)</script>)',
  '[x](vbscript:x)',
  '[x](//example.com/)',
  '[x](\\\\example.com)',
  '[x](https://example.com/"onmouseover="alert(1))',
  '[x](api.md#"onmouseover="alert(1))',
  '[x](api.md "title\\" onmouseover=alert(1)")',
  '![x" onerror="alert(1)](https://example.com/x.png)',
  '<javascript:alert(1)>',
  '[a]: javascript:alert(1)\n\n[a]',
  '# <img src=x onerror=alert(1)>\n\n## "onmouseover="alert(1)',
  '```sh" onload="alert(1)\n<script>alert(1)</script>\n```',
  '```html\n<script>alert(1)</script>\n```',
  '```\n</code></pre><script>alert(1)</script>\n```',
  '    <script>alert(1)</script>',
  '`<script>alert(1)</script>`',
  '| <script> | b |\n|---|---|\n| <img src=x onerror=alert(1)> | `<b>` |',
  '- <iframe src=//example.com>\n- [ ] <b>',
  '> <style>*{}</style>',
  '<!--><script>alert(1)</script>-->',
  '<!-- --><script>alert(1)</script><!-- -->',
  '<scr<!-- -->ipt>alert(1)</scr<!-- -->ipt>',
  '$ATOLL_URL<script>',
]
const harmless =
  /^\/?(?:p|h1|h2|div|a|pre|code|span|table|thead|tbody|tr|th|td|ul|li|blockquote|input)(?: (?:class|id|href|rel|aria-label|data-fill|type|disabled))*$/

for (const text of hostile) {
  test(`docs markdown: nothing acts in ${JSON.stringify(text)}`, () => {
    const rendered = html(text)
    assert.deepEqual(
      markupOf(rendered).filter((markup) => !harmless.test(markup)),
      [],
      rendered,
    )
    const hrefs = [...rendered.matchAll(/ href="([^"]*)"/g)].map(([, href]) => href!)
    assert.deepEqual(
      hrefs.filter((href) => !/^(?:#|\/docs|https:\/\/example\.com\/)/.test(href)),
      [],
      rendered,
    )
  })
}

test('docs markdown: headings have the ids of GitHub, an anchor, and sections with the text under them', () => {
  const text =
    '# The `atoll` command\n\nStart.\n\n## What it does: all & more\n\nOne.\n\n## Files\n\n| a | b |\n|---|---|\n| c | `d` |\n\n## Files\n'
  const { html: rendered, sections } = render(text)
  assert.deepEqual(
    sections.map(({ id, text: heading, body }) => [id, heading, body.trim()]),
    [
      ['the-atoll-command', 'The atoll command', 'Start.'],
      ['what-it-does-all--more', 'What it does: all & more', 'One.'],
      ['files', 'Files', 'a b\nc d'],
      ['files-1', 'Files', ''],
    ],
  )
  assert.match(rendered, /<h2 id="files">Files<\/h2><a class="anchor" href="#files" aria-label="Link to “Files”"><\/a>/)
  assert.match(rendered, /<h1 id="the-atoll-command">The <code class="short">atoll<\/code> command<\/h1>/)
})

test('docs markdown: a link leads to a page, out, or is the path of a file of the repository', () => {
  const target = (href: string) => targetOf(href, 'use/sdk.md', site)
  assert.deepEqual(target('api.md#repeats'), { kind: 'page', href: '/docs/use/api#repeats', title: 'The HTTP API' })
  assert.deepEqual(target('../README.md'), { kind: 'page', href: '/docs', title: 'Documentation' })
  assert.deepEqual(target('../use/'), { kind: 'page', href: '/docs/use', title: 'Use' })
  assert.deepEqual(target('#here'), { kind: 'page', href: '#here', title: undefined })
  assert.deepEqual(target('https://example.com/a.md'), { kind: 'outside', href: 'https://example.com/a.md' })
  assert.deepEqual(target('../../deploy/caddy/Caddyfile'), { kind: 'source', path: 'deploy/caddy/Caddyfile' })
  assert.deepEqual(target('../../../../etc/passwd'), { kind: 'none' })
  assert.equal(html('[api.md](api.md)'), '<p><a href="/docs/use/api">The HTTP API</a></p>')
  assert.equal(html('[the `API`](api.md)'), '<p><a href="/docs/use/api">the <code class="short">API</code></a></p>')
  assert.equal(html('[start](../../README.md#start)'), '<p>start (<code>README.md</code> in the repository)</p>')
  assert.equal(html('[Caddyfile](../../Caddyfile)'), '<p><code>Caddyfile</code></p>')
})

test('docs markdown: examples are coloured by classes, with places for address and key; drawings are set to their width', () => {
  const example = html('```sh\ncurl -H "X-API-Key: $ATOLL_API_KEY" "$ATOLL_URL/api"   # all\n```')
  assert.match(example, /<span data-fill="key">\$ATOLL_API_KEY<\/span>/)
  assert.match(example, /<span data-fill="address">\$ATOLL_URL<\/span>/)
  assert.match(example, /<span class="hljs-comment"># all<\/span>/)
  assert.match(
    html('```js\nnew Atoll({ url: "http://127.0.0.1:4100" })\n```'),
    /data-fill="address">http:\/\/127\.0\.0\.1:4100</,
  )
  assert.doesNotMatch(html('`$ATOLL_URL`'), /data-fill/, 'text names the variable')
  assert.doesNotMatch(html('```\n$ATOLL_URLS\n```'), /data-fill/)
  assert.match(html(`\`\`\`\n┌${'─'.repeat(100)}┐\n\`\`\``), /<div class="code drawing columns-110"><pre>/)
  assert.match(html('```nolanguage\na < b\n```'), /<div class="code"><pre><code>a &lt; b<\/code>/)
})

test('docs markdown: an empty head of a table is no heading', () => {
  assert.match(html('| | |\n|---|---|\n| a | b |'), /<thead>\s*<tr>\s*<td><\/td>\s*<td><\/td>\s*<\/tr>/)
})
