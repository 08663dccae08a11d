import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { drawn } from './draw.mjs'
import { isAllowed, rowOf, table, top } from './table.mjs'

const root = fileURLToPath(new URL('../../', import.meta.url))
const read = (path) => readFile(join(root, path), 'utf8')

/** Lints files of these texts with the rules of this repository. Returns the rules that each breaks, by its path. */
async function refusedIn(files) {
  const tree = await mkdtemp(join(tmpdir(), 'atoll-imports-'))
  try {
    await cp(join(root, '.oxlintrc.json'), join(tree, '.oxlintrc.json'))
    await cp(join(root, 'scripts/imports'), join(tree, 'scripts/imports'), { recursive: true })
    for (const [path, text] of Object.entries(files)) {
      await mkdir(dirname(join(tree, path)), { recursive: true })
      await writeFile(join(tree, path), text)
    }
    const diagnostics = await new Promise((resolve, reject) => {
      const argv = ['--format', 'json', 'src', 'sdk']
      // Exit status 1 is the expected one.
      execFile(join(root, 'node_modules/.bin/oxlint'), argv, { cwd: tree, maxBuffer: 2 ** 26 }, (error, stdout) =>
        error && error.code !== 1 ? reject(error) : resolve(JSON.parse(stdout).diagnostics),
      )
    })
    const ours = diagnostics.filter(({ code }) => /layers|no-cycle/.test(code))
    return Object.fromEntries(ours.map(({ filename, code }) => [filename, /layers|no-cycle/.exec(code)[0]]))
  } finally {
    await rm(tree, { recursive: true, force: true })
  }
}

test('imports: each pair of rows is allowed or refused as the table says, by type and from a deeper folder too', async () => {
  const files = {}
  const expected = {}
  const fileIn = (row) => (row.endsWith('.ts') ? row : `${row}/any.ts`)
  const place = (path) => (path.startsWith('sdk/') ? path : `src/${path}`)
  for (const from of [...Object.keys(table), top]) {
    if (from.endsWith('.ts')) continue
    for (const to of Object.keys(table)) {
      if (from === to) continue
      const path = `${from}/deeper/to-${to.replaceAll('/', '-')}`
      const target = place(fileIn(to))
      const up = '../'.repeat(place(path).split('/').length - 1)
      files[`${place(path)}.ts`] = `import type { Any } from '${up}${target}'\nexport type Mine = Any\n`
      const isRefused = from !== top && !table[from].includes(to)
      if (isRefused) expected[`${place(path)}.ts`] = 'layers'
    }
  }
  assert.ok(Object.keys(expected).length > 300)
  assert.deepEqual(await refusedIn(files), expected)
})

test('imports: those by name, of all, by re-export and at run time are checked, in tests none is', async () => {
  const refused = await refusedIn({
    'src/lib/value.ts': "import { one } from '../store/index.ts'\nexport const two = one\n",
    'src/lib/effect.ts': "import '../store/index.ts'\n",
    'src/lib/all.ts': "export * from '../store/index.ts'\n",
    'src/lib/named.ts': "export { one } from '../store/index.ts'\n",
    'src/lib/late.ts': "export const later = () => import('../store/index.ts')\n",
    'src/lib/type.ts': "export type One = import('../store/index.ts').One\n",
    'src/lib/free.test.ts': "import { one } from '../store/index.ts'\nexport const two = one\n",
    'src/session/inner.ts': "import type { Any } from '../sandbox/service.ts'\nexport type Mine = Any\n",
    'src/runtime/inner.ts': "import type { Any } from '../sandbox/service.ts'\nexport type Mine = Any\n",
    'src/runtime/outer.ts': "import type { Any } from '../sandbox/ports/guest.ts'\nexport type Mine = Any\n",
    'src/disk/one.ts': "import { two } from './two.ts'\nexport const one = () => two\n",
    'src/disk/two.ts': "import { one } from './one.ts'\nexport const two = () => one\n",
    'sdk/src/any.ts': "import type { Any } from '../../src/lib/any.ts'\nexport type Mine = Any\n",
  })
  assert.deepEqual(refused, {
    'sdk/src/any.ts': 'layers',
    'src/disk/one.ts': 'no-cycle',
    'src/disk/two.ts': 'no-cycle',
    ...Object.fromEntries(
      ['all', 'effect', 'late', 'named', 'type', 'value'].map((name) => [`src/lib/${name}.ts`, 'layers']),
    ),
    'src/runtime/inner.ts': 'layers',
    'src/session/inner.ts': 'layers',
  })
})

test('imports: each folder of src has a row, and nobody but a test imports the top one', async () => {
  const names = (await readdir(join(root, 'src'))).filter((name) => name !== 'http')
  assert.deepEqual(
    names.filter((name) => rowOf(`${name}/any.ts`) === undefined && rowOf(name) === undefined),
    [],
  )
  assert.equal(isAllowed('http/routes/any.ts', 'server/config.ts'), false)
})

test('imports: docs/ARCHITECTURE.md shows the drawing of the table', async () => {
  const page = await read('docs/ARCHITECTURE.md')
  assert.ok(drawn(page) === page, 'the drawing is stale: npm run imports')
})

test('imports: each folder of the table has a row in CONTRIBUTING.md', async () => {
  const page = await read('CONTRIBUTING.md')
  for (const row of [...Object.keys(table), top]) {
    const [folder] = row.split('/')
    assert.match(page, new RegExp(`^\\|.*\`(src/)?${folder}/?\``, 'm'), folder)
  }
})
