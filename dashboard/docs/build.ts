/** Makes the pages of the documentation from `docs/`, which the server gives out at `/docs`: `node dashboard/docs/build.ts`. */
import { cpSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'vite'
import { missingDocument, pageDocument } from './document.ts'
import { folderBody } from './folder.ts'
import { renderMarkdown } from './markdown.ts'
import { foundIn, type Found } from './search-index.ts'
import { readSite, type Site } from './site.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const target = join(root, 'dashboard/dist-docs')

/** Addresses below `/docs` that are no pages. */
const reserved = /^\/docs\/(?:api|assets|404)(?:\/|$)/

/** The files of the pages and of the search, by their names in the folder that is served. Throws for a page at an address of something else. */
export function renderSite(site: Site): Map<string, string> {
  const files = new Map<string, string>()
  const found: Found[] = []
  for (const page of site.pages.values()) {
    if (reserved.test(page.path)) throw new Error(`docs/${page.file} would be at ${page.path}, which is no page`)
    const body = page.text === undefined ? folderBody(page, site) : renderMarkdown(page.text, { file: page.file, site })
    files.set(fileOf(page.path), pageDocument(page, body, site))
    if (page.text !== undefined) found.push(...foundIn(page, body.sections))
  }
  files.set('404.html', missingDocument(site))
  files.set('assets/search.json', JSON.stringify(found))
  return files
}

/** The name of the file of a page. */
export function fileOf(path: string): string {
  return path === '/docs' ? 'index.html' : `${path.slice('/docs/'.length)}.html`
}

/** Bundles the scripts of the pages. The search is a file of its own, which the first search loads. */
async function buildScripts(folder: string): Promise<void> {
  const entry = (name: string) => fileURLToPath(new URL(`page/${name}.ts`, import.meta.url))
  for (const [name, format] of [
    ['docs', 'es'],
    ['theme', 'iife'],
  ] as const) {
    await build({
      configFile: false,
      logLevel: 'warn',
      publicDir: false,
      build: {
        outDir: folder,
        emptyOutDir: false,
        target: 'es2023',
        minify: true,
        modulePreload: false,
        lib: { entry: entry(name), formats: [format], name },
        rolldownOptions: {
          output: { entryFileNames: `${name}.js`, chunkFileNames: '[name].js', minify: true },
        },
      },
    })
  }
}

/** The folder is replaced as a whole, so that a server that starts meanwhile reads either all old files or all new ones. */
async function main(): Promise<void> {
  const made = `${target}.new`
  rmSync(made, { recursive: true, force: true })
  const files = renderSite(readSite(join(root, 'docs')))
  for (const [name, text] of files) {
    mkdirSync(dirname(join(made, name)), { recursive: true })
    writeFileSync(join(made, name), text)
  }
  await buildScripts(join(made, 'assets'))
  for (const name of ['docs.css', 'icon.svg']) {
    cpSync(fileURLToPath(new URL(`page/${name}`, import.meta.url)), join(made, 'assets', name))
  }
  rmSync(target, { recursive: true, force: true })
  renameSync(made, target)
  console.log(`documentation: ${files.size - 2} pages in dashboard/dist-docs`)
}

if (import.meta.main) await main()
