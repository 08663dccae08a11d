import type { FileChange, Sandbox, SandboxInfo } from 'atoll-sdk'
import { Ellipsis } from 'lucide-react'
import { useMemo, useState, type ReactNode } from 'react'
import { serverNow } from '../../../lib/clock.ts'
import { nameOf } from '../../../sandboxes/sandbox.ts'
import { IconButton } from '../../../ui/button.tsx'
import { Menu } from '../../../ui/menu.tsx'
import { folderCommands } from './commands.ts'
import { downloadOf } from './download.ts'
import { chosenFiles, droppedFiles } from './dropped-files.ts'
import { type EntryAct, EntryDialogs } from './entry-dialogs.tsx'
import { fileReason } from './file-reason.ts'
import { type EntryRow, FileTree } from './file-tree.tsx'
import { FilesBar } from './files-bar.tsx'
import { PathBar } from './path-bar.tsx'
import { keyOf, nameOfPlace, type Place } from './place.ts'
import { rowsOf } from './rows.ts'
import { shownName } from './shown-name.ts'
import { UploadPanel } from './upload-panel.tsx'
import type { useFolders } from './use-folders.ts'
import { useTreeOrder } from './use-preferences.ts'
import { useUploads } from './use-uploads.tsx'
import { useWatch } from './use-watch.ts'

interface FileBrowserProps {
  sandbox: Sandbox
  info: SandboxInfo
  tree: ReturnType<typeof useFolders>
  openFile: Place | undefined
  mayWrite: boolean
  awake: () => Promise<boolean>
  onOpen: (file: Place) => void
  onGo: (folder: Place) => void
  onCompare: () => void
  onDeleted: (place: Place) => void
  /** What has happened to files, by this page and by others. */
  onChanges: (changes: readonly FileChange[]) => void
}

/** What was read so lately needs no other read when a watch begins. */
const freshMs = 3000

/** The files of a sandbox as a tree, with what can be done with them. */
export function FileBrowser(props: FileBrowserProps): ReactNode {
  const { sandbox, info, tree, openFile, mayWrite, awake, onOpen, onGo, onCompare, onDeleted, onChanges } = props
  const { store, folders, root } = tree
  const isAwake = info.status === 'running'
  const [order, setOrder] = useTreeOrder()
  const [activeKey, setActiveKey] = useState(() => (openFile === undefined ? undefined : keyOf(openFile)))
  const [act, setAct] = useState<EntryAct>()
  const rows = useMemo(() => rowsOf(root, folders, order), [root, folders, order])
  const active = rows.find((row): row is EntryRow => row.type === 'entry' && row.key === activeKey)
  /** Gets what is new. */
  const folder = active === undefined ? root : folderOf(active)
  const note = (changes: readonly FileChange[]) => {
    store.note(changes)
    onChanges(changes)
  }
  const uploads = useUploads(sandbox, {
    awake,
    onChanges: note,
    onSent: (place, { size }) => store.learn(place, { size, modifiedAt: serverNow() }),
  })
  const watched = active === undefined ? root : active.isOpen ? active.place : active.folder
  const watchError = useWatch(sandbox, watched, {
    isAwake,
    onChanges: note,
    onMissed: () => {
      const known = store.view().get(keyOf(watched))
      if (known !== undefined && !known.isLoading && Date.now() - known.readAtMs > freshMs) void store.read(watched)
    },
  })
  const whenAwake = async (then: () => void) => {
    if (await awake()) then()
  }
  const fold = (row: EntryRow, isOpen: boolean) => {
    if (isOpen) void whenAwake(() => void store.read(row.place))
    else store.close(row.place)
  }
  const begin = (next: EntryAct) => void whenAwake(() => setAct(next))
  const download = (place: Place) =>
    void whenAwake(() => Object.assign(document.createElement('a'), downloadOf(sandbox.id, place)).click())
  const menu = (row: EntryRow) => (
    <Menu
      label={shownName(row.entry.name)}
      trigger={
        <IconButton
          size="small"
          className="h-6! w-6!"
          tabIndex={-1}
          label={`More about ${shownName(row.entry.name)}`}
          icon={<Ellipsis className="size-4" />}
        />
      }
      items={[
        row.entry.isDir
          ? { label: 'Go to', onSelect: () => onGo(row.place) }
          : { label: 'Download', onSelect: () => download(row.place) },
        mayWrite ? { label: 'Rename', onSelect: () => begin({ type: 'rename', row }) } : undefined,
        mayWrite ? { label: 'Delete', isDanger: true, onSelect: () => begin({ type: 'delete', row }) } : undefined,
      ]}
    />
  )
  return (
    <section aria-label="Files" className="flex min-h-0 flex-1 flex-col">
      <div className="flex flex-col gap-1 border-b p-1.5">
        <FilesBar
          order={order}
          isReading={[...folders.values()].some(({ isLoading }) => isLoading)}
          mayWrite={mayWrite}
          commands={folderCommands(nameOf(info), sandbox.id, root)}
          onOrder={setOrder}
          onRefresh={() => void whenAwake(() => void store.readAll())}
          onNewFile={() => begin({ type: 'new-file', folder })}
          onNewFolder={() => begin({ type: 'new-folder', folder })}
          onChoose={(list) => void uploads.upload(folder, () => chosenFiles(list))}
          onCompare={onCompare}
        />
        <PathBar key={keyOf(root)} place={root} onGo={(place) => void whenAwake(() => onGo(place))} />
      </div>
      <FileTree
        label={`Files in ${shownName(nameOfPlace(root))}`}
        rows={rows}
        activeKey={activeKey}
        openKey={openFile === undefined ? undefined : keyOf(openFile)}
        onActive={(row) => setActiveKey(row.key)}
        onOpen={(row) => (row.entry.isDir ? fold(row, !row.isOpen) : onOpen(row.place))}
        onFold={(row, isOpen) => fold(row, isOpen)}
        onRename={mayWrite ? (row) => begin({ type: 'rename', row }) : undefined}
        onDelete={mayWrite ? (row) => begin({ type: 'delete', row }) : undefined}
        onRetry={(place) => void whenAwake(() => void store.read(place))}
        menu={menu}
        onDrop={
          mayWrite
            ? (row, transfer) =>
                void uploads.upload(row === undefined ? root : folderOf(row), () => droppedFiles(transfer))
            : undefined
        }
      />
      {watchError !== undefined && (
        <p role="status" className="border-t px-3 py-1.5 text-[13px] text-warn">
          Changes are not shown as they happen: {fileReason(watchError)}
        </p>
      )}
      <UploadPanel queue={uploads.queue} />
      {uploads.dialog}
      {act !== undefined && (
        <EntryDialogs
          files={sandbox.files}
          act={act}
          onClose={() => setAct(undefined)}
          onDone={(changes, place) => {
            setAct(undefined)
            note(changes)
            if (act.type === 'delete') onDeleted(act.row.place)
            if (place !== undefined) setActiveKey(keyOf(place))
            if (place !== undefined && act.type === 'new-file') onOpen(place)
          }}
        />
      )}
    </section>
  )
}

function folderOf({ entry, place, folder }: EntryRow): Place {
  return entry.isDir ? place : folder
}
