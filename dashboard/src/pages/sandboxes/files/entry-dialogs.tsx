import type { FileChange, Files } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { Confirm } from '../../../ui/dialog.tsx'
import { FileName } from './file-name.tsx'
import type { EntryRow } from './file-tree.tsx'
import { NameDialog } from './name-dialog.tsx'
import { childPlace, nameOfPlace, type Place } from './place.ts'
import { shownName } from './shown-name.ts'

export type EntryAct =
  | { type: 'new-folder'; folder: Place }
  | { type: 'new-file'; folder: Place }
  | { type: 'rename'; row: EntryRow }
  | { type: 'delete'; row: EntryRow }

interface EntryDialogsProps {
  files: Files
  act: EntryAct
  onClose: () => void
  /** What the act has changed. `place`: what was made or renamed. */
  onDone: (changes: readonly FileChange[], place: Place | undefined) => void
}

/** Asks for what an act on a file or folder needs, and does it. */
export function EntryDialogs({ files, act, onClose, onDone }: EntryDialogsProps): ReactNode {
  if (act.type === 'delete') {
    const { place, entry } = act.row
    return (
      <Confirm
        isOpen
        onOpenChange={(isOpen) => !isOpen && onClose()}
        title={`Delete ${shownName(entry.name)}?`}
        action={entry.isDir ? 'Delete the folder' : 'Delete the file'}
        onConfirm={async () => {
          await files.remove(place)
          onDone([{ type: 'removed', ...place }], undefined)
        }}
      >
        <FileName name={place.path} className="break-all whitespace-pre-wrap font-mono text-[13px]" />
        {entry.isDir ? ' and all that it holds are gone for good.' : ' is gone for good.'} A checkpoint that has it
        keeps it.
      </Confirm>
    )
  }
  if (act.type === 'rename') {
    const { place, folder, entry } = act.row
    const { path, pathBase64 } = place
    return (
      <NameDialog
        title={`Rename ${shownName(entry.name)}`}
        action="Rename"
        name={entry.name}
        onCancel={onClose}
        onSubmit={async (name) => {
          const target = childPlace(folder, name)
          await files.move(place, target)
          const from = pathBase64 === undefined ? { from: path } : { from: path, fromBase64: pathBase64 }
          onDone([{ type: 'moved', ...target, ...from, isDir: entry.isDir }], target)
        }}
      />
    )
  }
  const isFolder = act.type === 'new-folder'
  return (
    <NameDialog
      title={`New ${isFolder ? 'folder' : 'file'} in ${shownName(nameOfPlace(act.folder))}`}
      action="Create"
      name=""
      onCancel={onClose}
      onSubmit={async (name) => {
        const place = childPlace(act.folder, name)
        if (await files.exists(place)) throw new Error('There is something with this name already.')
        await (isFolder ? files.makeDir(place) : files.write(place, new Uint8Array()))
        onDone([{ type: 'created', ...place, isDir: isFolder }], place)
      }}
    />
  )
}
