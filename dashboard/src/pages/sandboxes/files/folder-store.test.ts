import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Entry } from './entry.ts'
import { FolderStore } from './folder-store.ts'
import { rowsOf } from './rows.ts'

const root = { path: '/w' }
const file = (name: string, size = 1): Entry => ({ name, isDir: false, size, modifiedAt: 0 })
const folder = (name: string): Entry => ({ name, isDir: true, size: 0, modifiedAt: 0 })
const order = { sortBy: 'name', isDescending: false, showsHidden: false } as const

function names(store: FolderStore, given = order): string[] {
  return rowsOf(root, store.view(), given).map(
    (row) =>
      ' '.repeat(row.depth) +
      (row.type === 'entry' ? row.entry.name : row.type === 'note' ? `(${row.note})` : '(error)'),
  )
}

async function applied(store: FolderStore): Promise<void> {
  await new Promise<void>((resolve) => {
    const stop = store.subscribe(() => (stop(), resolve()))
  })
}

test('folder store: rows of open folders, folders first, in the order that is wanted', async () => {
  const content: Record<string, Entry[]> = {
    '/w': [file('b10'), file('b9', 9), folder('sub'), file('.hidden')],
    '/w/sub': [],
  }
  const store = new FolderStore(async ({ path }) => content[path] ?? [])
  await store.read(root)
  await store.read({ path: '/w/sub' })
  assert.deepEqual(names(store), ['sub', ' (empty)', 'b9', 'b10'])
  const bySize = { sortBy: 'size', isDescending: true, showsHidden: true } as const
  assert.deepEqual(
    rowsOf(root, store.view(), bySize).flatMap((row) => (row.type === 'entry' ? row.entry.name : [])),
    ['sub', 'b9', 'b10', '.hidden'],
  )
  store.close({ path: '/w/sub' })
  assert.deepEqual(names(store), ['sub', 'b9', 'b10'])
})

test('folder store: changes are noted where their folder is open, and what is known of a file stays', async () => {
  const store = new FolderStore(async () => [
    file('a', 5),
    file('b', 6),
    { ...file('x\\xff'), pathBase64: btoa('/w/x\xff') },
  ])
  await store.read(root)
  store.note([
    { type: 'created', path: '/w/new', isDir: true },
    { type: 'removed', path: '/w/x\\xff', pathBase64: btoa('/w/x\xff') },
    { type: 'moved', path: '/w/c', from: '/w/b' },
    { type: 'modified', path: '/w/a' },
    { type: 'created', path: '/elsewhere/d' },
  ])
  await applied(store)
  assert.deepEqual(names(store), ['new', 'a', 'c'])
  const sizes = () =>
    Object.fromEntries(
      store
        .view()
        .get('/w')
        ?.entries?.map(({ name, size }) => [name, size]) ?? [],
    )
  assert.deepEqual(sizes(), { a: undefined, new: undefined, c: undefined })
  store.learn({ path: '/w/a' }, { size: 7, modifiedAt: 1 })
  await applied(store)
  assert.equal(sizes()['a'], 7)
})

test('folder store: a failure keeps what was read, and a reading that is overtaken is forgotten', async () => {
  let fails = false
  const store = new FolderStore(async () => {
    if (fails) throw new Error('no')
    return [file('a')]
  })
  await store.read(root)
  fails = true
  await store.read(root)
  assert.deepEqual(names(store), ['(error)', 'a'])
  fails = false
  await Promise.all([store.read(root), store.read(root)])
  assert.deepEqual(names(store), ['a'])
  store.clear()
  assert.deepEqual(names(store), [])
})
