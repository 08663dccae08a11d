// The table of imports in CONTRIBUTING.md against the rules in .oxlintrc.json: each pair of folders is tried for real.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../../', import.meta.url))

/** Rows of the table: the folders of the first column, and what the third allows. */
async function readTable() {
  const text = await readFile(join(root, 'CONTRIBUTING.md'), 'utf8')
  const allowed = new Map()
  for (const [, first, third] of text.matchAll(/^\| (`src\/[^|]*) \|[^|]*\| ([^|]*) \|$/gm)) {
    for (const [, folder] of first.matchAll(/`src\/(\w+)\/`/g)) {
      allowed.set(folder, new Set(third.replaceAll(/\([^)]*\)/g, '').match(/\w+/g)))
    }
  }
  return allowed
}

let tree
before(async () => {
  tree = await mkdtemp(join(tmpdir(), 'atoll-imports-'))
  await copyFile(join(root, '.oxlintrc.json'), join(tree, '.oxlintrc.json'))
})
after(() => rm(tree, { recursive: true, force: true }))

async function write(path, text) {
  await mkdir(dirname(join(tree, path)), { recursive: true })
  await writeFile(join(tree, path), text)
}

/** Lints the tree and returns the files in which an import was refused. */
function refused() {
  const oxlint = join(root, 'node_modules/.bin/oxlint')
  return new Promise((resolve, reject) => {
    // Exit status 1 is the expected one.
    execFile(oxlint, ['--format', 'json', 'src'], { cwd: tree, maxBuffer: 2 ** 26 }, (error, stdout) => {
      if (error && error.code !== 1) return reject(error)
      const { diagnostics } = JSON.parse(stdout)
      resolve(
        new Set(diagnostics.filter((one) => one.code.includes('no-restricted-imports')).map((one) => one.filename)),
      )
    })
  })
}

test('each folder of src may import what the table says and nothing else', async () => {
  const allowed = await readTable()
  const folders = [...allowed.keys()]
  assert.ok(folders.length >= 13, `the table names ${folders.length} folders`)
  const expected = new Set()
  for (const from of folders) {
    for (const to of folders) {
      if (from === to) continue
      const may = allowed.get(from).has(to) || allowed.get(from).has('everything')
      // One file beside the folder's own, one a level deeper: both reach out by a relative path.
      for (const [path, up] of [
        [`src/${from}/to-${to}.ts`, '..'],
        [`src/${from}/deeper/to-${to}.ts`, '../..'],
      ]) {
        await write(path, `import type { Any } from '${up}/${to}/${portOf(from, to)}.ts'\nexport type Mine = Any\n`)
        if (!may) expected.add(path)
      }
    }
  }
  assert.deepEqual(await refused(), expected)
})

/** Where the table allows only some files of a folder, the allowed one. */
function portOf(from, to) {
  if (from === 'runtime' && to === 'sandbox') return 'ports/guest'
  return from === 'events' && to === 'protocol' ? 'log-events' : 'index'
}

test('sessions see the index of the sandbox domain alone, drivers its ports alone', async () => {
  await rm(join(tree, 'src'), { recursive: true, force: true })
  const inside = (name) => `import type { Any } from '../sandbox/${name}.ts'\nexport type Mine = Any\n`
  await write('src/session/inner.ts', inside('service'))
  await write('src/session/outer.ts', inside('index'))
  await write('src/runtime/inner.ts', inside('service'))
  await write('src/runtime/outer.ts', inside('ports/guest'))
  assert.deepEqual(await refused(), new Set(['src/runtime/inner.ts', 'src/session/inner.ts']))
})
