/** The pages of this repository's documentation, as they are served. */
import assert from 'node:assert/strict'
import { fileURLToPath } from 'node:url'
import { test } from 'node:test'
import { fileOf, renderSite } from './build.ts'
import { readSite } from './site.ts'

const site = readSite(fileURLToPath(new URL('../../docs', import.meta.url)))
const files = renderSite(site)
const pages = [...files].filter(([name]) => name.endsWith('.html'))

/** What the server answers beside the pages. */
const others = new Set(['/', '/docs/api'])

const idsOf = (html: string) => [...html.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id)
const attributes = (html: string, name: string) =>
  [...html.matchAll(new RegExp(` ${name}="([^"]*)"`, 'g'))].map(([, value]) => value!)

test('docs build: every link of every page leads to a page, and its anchor to an element', () => {
  assert.ok(pages.length > 100, `${pages.length} pages`)
  const ids = new Map(pages.map(([name, html]) => [name, new Set(idsOf(html))]))
  const broken: string[] = []
  let found = 0
  for (const [name, html] of pages) {
    for (const href of attributes(html, 'href')) {
      if (/^https:\/\/|^\/docs\/assets\//.test(href) || others.has(href)) continue
      found++
      const [path = '', anchor] = href.split('#')
      const target = ids.get(path === '' ? name : fileOf(path))
      if (target === undefined || (anchor !== undefined && !target.has(decodeURIComponent(anchor)))) {
        broken.push(`${name}: ${href}`)
      }
    }
  }
  assert.ok(found > 5000, `${found} links`)
  assert.deepEqual(broken, [])
})

test('docs build: ids of a page are unique, and links of its own kind of file are gone', () => {
  for (const [name, html] of pages) {
    const ids = idsOf(html)
    assert.deepEqual(
      ids.filter((id, index) => ids.indexOf(id) !== index),
      [],
      name,
    )
    assert.deepEqual(
      attributes(html, 'href').filter((href) => /\.md\b/.test(href) && !href.startsWith('https:')),
      [],
      name,
    )
  }
})

test('docs build: pages have no inline script, no inline style, no handler and nothing of other hosts', () => {
  for (const [name, html] of pages) {
    assert.doesNotMatch(
      html,
      /<style| style="|<[^>]* on\w+=|<script(?![^>]* src="\/docs\/assets\/)|<iframe|<form/,
      name,
    )
    assert.deepEqual(
      attributes(html, 'src').filter((source) => !source.startsWith('/docs/assets/')),
      [],
      name,
    )
    assert.equal(html.split('<h1').length, 2, `${name} has one title`)
  }
})

test('docs build: all pages for using and operating are in the list of pages, in the order of the index', () => {
  const titles = site.groups.map(({ title }) => title)
  assert.deepEqual(titles, ['Use', 'How to', 'Operate', 'Internals'])
  const listed = site.groups.flatMap((group) => group.pages)
  assert.deepEqual(
    listed.slice(0, 3).map(({ file }) => file),
    ['use/api.md', 'use/errors.md', 'use/cli.md'],
  )
  assert.equal(new Set(listed).size, listed.length, 'none twice')
  const missing = [...site.pages.values()].filter(
    (page) => /^(?:use|operate)\/.*\.md$/.test(page.file) && !listed.includes(page),
  )
  assert.deepEqual(
    missing.map(({ file }) => file),
    [],
  )
})

test('docs build: the search has each section of these pages, with addresses that exist', () => {
  const found = JSON.parse(files.get('assets/search.json')!) as string[][]
  assert.ok(found.length > 250, `${found.length} sections`)
  assert.ok(
    found.some(
      ([href, title, heading]) => href === '/docs/use/api#repeats' && title === 'The HTTP API' && heading === 'Repeats',
    ),
  )
  for (const [href = '', title, , text = ''] of found) {
    const [path = '', anchor] = href.split('#')
    const html = files.get(fileOf(path)) ?? ''
    assert.ok(anchor === undefined || html.includes(` id="${anchor}"`), href)
    assert.ok(title !== '' && !text.includes('\n') && !text.includes('&lt;'), href)
  }
})

test('docs build: a page stays small', async () => {
  const { gzipSync } = await import('node:zlib')
  const sizes = pages.map(([name, html]) => ({ name, bytes: gzipSync(html, { level: 9 }).length }))
  // Style and scripts are 7 kB more.
  assert.deepEqual(
    sizes.filter(({ bytes }) => bytes > 45_000),
    [],
  )
})

test('docs build: each example in code has its address and its key where the script of the page finds them', () => {
  for (const [name, html] of pages) {
    for (const [block] of html.matchAll(/<pre>.*?<\/pre>/gs)) {
      const bare = block.replaceAll(/<span data-fill="(?:address|key)">[^<]*<\/span>/g, '')
      assert.doesNotMatch(
        bare.replaceAll(/<[^>]*>/g, ''),
        /\$\{?ATOLL_(?:URL|API_KEY)\b|http:\/\/127\.0\.0\.1:4100\b/,
        name,
      )
    }
  }
  assert.match(files.get('use/organisations.html')!, /data-scopes="[^"]*\bkeys\b[^"]*"/)
  assert.match(files.get('use/api.html')!, /data-scopes="(?![^"]*\bkeys\b)[^"]*sandbox:write/)
  assert.doesNotMatch(files.get('operate/fairness.html')!, /data-scopes/)
})
