import { getRouteApi } from '@tanstack/react-router'
import type { FileChange, Sandbox, SandboxInfo } from 'atoll-sdk'
import { useRef, useState, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { nameOf } from '../../../sandboxes/sandbox.ts'
import { cx } from '../../../ui/cx.ts'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { useSandbox } from '../use-sandbox.ts'
import { Asleep } from './asleep.tsx'
import { CheckpointDiff } from './checkpoint-diff.tsx'
import { FileBrowser } from './file-browser.tsx'
import { FileView } from './file-view.tsx'
import { addressOf, isSamePlace, isWithin, keyOf, type Place, placeOfAddress, placeTold } from './place.ts'
import type { FileConflict } from './save-text.ts'
import { useFolders } from './use-folders.ts'
import { useWakeGuard } from './use-wake-guard.tsx'

const route = getRouteApi('/shell/sandboxes/$sandboxId')

/** A change that follows a save of this page is that save. */
const ownChangeMs = 2000

/** The files of a sandbox: a tree, and the one that is open. It fills the height of its parent. */
export function FilesPane({ sandboxId }: { sandboxId: string }): ReactNode {
  const may = useMay()
  const { sandbox, info, error, retry } = useSandbox(sandboxId)
  if (!may('sandbox:read')) return <EmptyState title="No files">Your key may not read files.</EmptyState>
  if (error !== null && info === undefined) return <ErrorNote error={error} onRetry={retry} />
  if (sandbox === undefined || info === undefined) return <Loading label="Loading the sandbox" />
  if (info.status === 'stopped' || info.status === 'error') {
    return (
      <EmptyState title="No files">
        The sandbox {info.status === 'error' ? 'has failed' : 'has stopped'}. Its checkpoints may have its files still.
      </EmptyState>
    )
  }
  return <OpenFiles key={sandbox.id} sandbox={sandbox} info={info} mayWrite={may('sandbox:exec')} />
}

function OpenFiles({ sandbox, info, mayWrite }: { sandbox: Sandbox; info: SandboxInfo; mayWrite: boolean }): ReactNode {
  const { path = '' } = route.useSearch()
  const navigate = route.useNavigate()
  const shown = placeOfAddress(path)
  const openFile = shown === undefined || shown.isFolder ? undefined : shown.place
  const isAwake = info.status === 'running'
  const tree = useFolders(sandbox, shown, isAwake)
  const guard = useWakeGuard(sandbox, info)
  const [isComparing, setComparing] = useState(false)
  const [conflict, setConflict] = useState<{ key: string; type: FileConflict }>()
  const freshAtMs = useRef(0)
  const isBeside = isComparing || openFile !== undefined

  const show = (address: string | undefined) =>
    navigate({
      search: ({ path: _path, ...search }) => (address === undefined ? search : { ...search, path: address }),
    })
  const onChanges = (changes: readonly FileChange[]) => {
    if (openFile === undefined) return
    const key = keyOf(openFile)
    for (const { path: changed, pathBase64, from, fromBase64, type } of changes) {
      const place = placeTold(changed, pathBase64)
      if (place === undefined) continue
      if (from !== undefined && (fromBase64 ?? from) === key) void show(addressOf(place, false))
      else if (type === 'removed' && isWithin(openFile, place)) setConflict({ key, type: 'removed' })
      else if (isSamePlace(place, openFile) && Date.now() - freshAtMs.current > ownChangeMs)
        setConflict({ key, type: 'changed' })
    }
  }
  const open = (file: Place) => {
    setComparing(false)
    void show(addressOf(file, false))
  }
  const go = (folder: Place) => {
    tree.setRoot(folder)
    if (openFile === undefined) void show(addressOf(folder, true))
  }

  if (!isAwake && tree.folders.size === 0) {
    return info.status === 'creating' ? (
      <EmptyState title="The sandbox is starting" />
    ) : (
      <Asleep action="Wake it and read its files" onWake={guard.wake} />
    )
  }
  return (
    <div className="flex min-h-96 flex-1 overflow-hidden rounded-lg border bg-raised">
      <div className={cx('flex min-h-0 w-full flex-col md:w-80 md:shrink-0 md:border-r', isBeside && 'max-md:hidden')}>
        <FileBrowser
          sandbox={sandbox}
          info={info}
          tree={tree}
          openFile={openFile}
          mayWrite={mayWrite}
          awake={guard.awake}
          onOpen={open}
          onGo={go}
          onCompare={() => setComparing(true)}
          onDeleted={(place) => openFile !== undefined && isWithin(openFile, place) && void show(undefined)}
          onChanges={onChanges}
        />
      </div>
      <div className={cx('flex min-h-0 min-w-0 flex-1 flex-col', !isBeside && 'max-md:hidden')}>
        {isComparing ? (
          <CheckpointDiff
            sandbox={sandbox}
            sandboxName={nameOf(info)}
            folder={tree.root.path}
            onClose={() => setComparing(false)}
          />
        ) : openFile !== undefined ? (
          <FileView
            key={keyOf(openFile)}
            sandbox={sandbox}
            info={info}
            place={openFile}
            conflict={conflict?.key === keyOf(openFile) ? conflict.type : undefined}
            mayWrite={mayWrite}
            awake={guard.awake}
            onWake={guard.wake}
            onClose={() => void show(undefined)}
            onFresh={(size, modifiedAt) => {
              freshAtMs.current = Date.now()
              setConflict(undefined)
              tree.store.learn(openFile, { size, modifiedAt: Date.parse(modifiedAt) })
            }}
          />
        ) : (
          <div className="m-auto p-6 text-center text-soft">
            <p>Choose a file to see it.</p>
            {mayWrite && <p>Drop files on the tree to upload them.</p>}
          </div>
        )}
      </div>
      {guard.dialog}
    </div>
  )
}
