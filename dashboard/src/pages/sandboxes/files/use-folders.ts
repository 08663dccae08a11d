import type { Sandbox } from 'atoll-sdk'
import { NotFoundError } from 'atoll-sdk'
import { useEffect, useEffectEvent, useMemo, useState, useSyncExternalStore } from 'react'
import { whileAwake } from '../awake.tsx'
import { entryOf } from './entry.ts'
import { type Folders, FolderStore } from './folder-store.ts'
import { isSamePlace, isWithin, keyOf, parentPlace, type Place } from './place.ts'

/** Each image has it, but a sandbox may have removed it. */
const workspace: Place = { path: '/workspace' }
const top: Place = { path: '/' }
/** A long folder takes a machine some seconds. */
const listTimeoutMs = 180_000

interface OpenFolders {
  store: FolderStore
  folders: Folders
  /** The folder at the top of the tree. */
  root: Place
  setRoot: (root: Place) => void
}

/** The open folders of a sandbox. They are read while it is awake. `shown`: what is to be seen at the beginning. */
export function useFolders(
  sandbox: Sandbox,
  shown: { place: Place; isFolder: boolean } | undefined,
  isAwake: boolean,
): OpenFolders {
  const [root, setRoot] = useState(() => rootOf(shown))
  const store = useMemo(
    () =>
      new FolderStore((place, signal) =>
        whileAwake(sandbox.id, signal, async () => {
          const entries = await sandbox.files.list(place, { signal, requestTimeoutMs: listTimeoutMs })
          return entries.map(entryOf)
        }),
      ),
    [sandbox],
  )
  const folders = useSyncExternalStore(store.subscribe, store.view)
  const readMissing = useEffectEvent(() => {
    const above = shown === undefined || shown.isFolder ? [] : foldersBetween(root, shown.place)
    for (const place of [root, ...above]) {
      if (!store.view().has(keyOf(place))) void store.read(place)
    }
  })
  const rootKey = keyOf(root)
  useEffect(() => {
    if (isAwake) readMissing()
  }, [store, rootKey, isAwake])
  useEffect(() => () => store.clear(), [store])
  const { error } = folders.get(rootKey) ?? {}
  const isMissing = error instanceof NotFoundError && isSamePlace(root, workspace)
  useEffect(() => {
    if (isMissing) setRoot(top)
  }, [isMissing])
  return {
    store,
    folders,
    root,
    setRoot: (next) => {
      store.clear()
      if (isSamePlace(next, root)) void store.read(next)
      else setRoot(next)
    },
  }
}

function rootOf(shown: { place: Place; isFolder: boolean } | undefined): Place {
  if (shown === undefined) return workspace
  if (shown.isFolder) return shown.place
  return isWithin(shown.place, workspace) ? workspace : (parentPlace(shown.place) ?? top)
}

/** The folders above a place, without the root of the tree, from the top. */
function foldersBetween(root: Place, place: Place): Place[] {
  const found: Place[] = []
  for (let above = parentPlace(place); above !== undefined; above = parentPlace(above)) {
    if (isSamePlace(above, root)) return found
    found.unshift(above)
  }
  return []
}
