import type { FileChange, Sandbox } from 'atoll-sdk'
import { useEffect, useEffectEvent, useMemo, useState, type ReactNode } from 'react'
import { useToast } from '../../../ui/toasts.tsx'
import { CollisionDialog } from './collision-dialog.tsx'
import { collisionsOf, type TargetedFile, targetsOf } from './collisions.ts'
import type { LocalFile } from './dropped-files.ts'
import { fileReason } from './file-reason.ts'
import { parentPlace, type Place } from './place.ts'
import { sendFile } from './send-file.ts'
import { type Upload, UploadQueue } from './upload-queue.ts'

interface UploadsOptions {
  awake: () => Promise<boolean>
  onChanges: (changes: readonly FileChange[]) => void
  onSent: (place: Place, file: File) => void
}

/** Uploads into a sandbox. They end when the component goes. */
export function useUploads(
  sandbox: Sandbox,
  { awake, onChanges, onSent }: UploadsOptions,
): {
  queue: UploadQueue
  /** `read` is called at once, since browsers let go what was chosen or dropped. */
  upload: (folder: Place, read: () => LocalFile[] | Promise<LocalFile[]>) => Promise<void>
  dialog: ReactNode
} {
  const toast = useToast()
  const [asked, setAsked] = useState<{ taken: TargetedFile[]; others: TargetedFile[] }>()
  const tell = useEffectEvent(({ place, file }: Upload) => {
    onChanges(changesOf(place, file === undefined))
    if (file !== undefined) onSent(place, file)
  })
  const queue = useMemo(
    () =>
      new UploadQueue(
        async ({ place, file }, { signal, onSent: onProgress }) => {
          if (file === undefined) await sandbox.files.makeDir(place, { signal })
          else await sendFile(sandbox.id, place, file, { signal, onSent: onProgress })
        },
        (upload) => tell(upload),
      ),
    [sandbox],
  )
  useEffect(() => () => queue.close(), [queue])
  const upload = async (folder: Place, read: () => LocalFile[] | Promise<LocalFile[]>) => {
    try {
      const files = await read()
      if (files.length === 0 || !(await awake())) return
      const targets = targetsOf(folder, files)
      const found = await collisionsOf(sandbox.files, folder, targets)
      if (found.size === 0) return queue.add(targets)
      setAsked({ taken: [...found], others: targets.filter((target) => !found.has(target)) })
    } catch (error) {
      toast({ tone: 'bad', text: `Nothing was uploaded: ${fileReason(error)}` })
    }
  }
  const answer = (files: readonly TargetedFile[]) => {
    setAsked(undefined)
    queue.add(files)
  }
  const dialog = asked !== undefined && (
    <CollisionDialog
      taken={asked.taken}
      others={asked.others.length}
      onReplace={() => answer([...asked.others, ...asked.taken])}
      onSkip={() => answer(asked.others)}
      onCancel={() => setAsked(undefined)}
    />
  )
  return { queue, upload, dialog }
}

/** That something was made, with the folders above it. */
function changesOf(place: Place, isDir: boolean): FileChange[] {
  const changes: FileChange[] = [{ type: 'created', ...place, isDir }]
  for (let above = parentPlace(place); above !== undefined; above = parentPlace(above)) {
    changes.push({ type: 'created', ...above, isDir: true })
  }
  return changes
}
