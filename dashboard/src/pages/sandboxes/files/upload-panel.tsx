import { X } from 'lucide-react'
import { useSyncExternalStore, type ReactNode } from 'react'
import { formatBytes, formatCount } from '../../../lib/format.ts'
import { Button, IconButton } from '../../../ui/button.tsx'
import { FileName } from './file-name.tsx'
import { fileReason } from './file-reason.ts'
import type { Upload, UploadQueue } from './upload-queue.ts'

/** Rows of uploads that are drawn; the numbers are of all. */
const shownMax = 20

/** How far uploads are, and which have failed. */
export function UploadPanel({ queue }: { queue: UploadQueue }): ReactNode {
  const { uploads, bytes, sentBytes, isBusy } = useSyncExternalStore(queue.subscribe, queue.view)
  if (uploads.length === 0) return null
  const count = (state: Upload['state']) => uploads.filter((upload) => upload.state === state).length
  const [sent, failed, cancelled] = [count('sent'), count('failed'), count('cancelled')]
  const shown = [
    ...uploads.filter(({ state }) => state === 'failed'),
    ...uploads.filter(({ state }) => state === 'sending'),
  ].slice(0, shownMax)
  const percent = bytes === 0 ? 100 : Math.floor((100 * sentBytes) / bytes)
  return (
    <section aria-label="Uploads" className="flex max-h-56 shrink-0 flex-col border-t">
      <div className="flex items-center gap-2 px-3 py-1.5">
        <p role="status" className="min-w-0 flex-1 truncate text-[13px]">
          {isBusy ? 'Uploading: ' : 'Uploaded: '}
          {formatCount(sent)} of {formatCount(uploads.length - cancelled)}
          {isBusy && `, ${formatBytes(sentBytes)} of ${formatBytes(bytes)}`}
          {failed > 0 && <span className="text-bad">, {formatCount(failed)} failed</span>}
          {cancelled > 0 && <span className="text-soft">, {formatCount(cancelled)} cancelled</span>}
        </p>
        {isBusy ? (
          <Button size="small" onClick={() => queue.cancelAll()}>
            Cancel
          </Button>
        ) : (
          <IconButton label="Close" icon={<X className="size-4" />} onClick={() => queue.clear()} />
        )}
      </div>
      {isBusy && (
        <div
          role="progressbar"
          aria-label="Uploads"
          aria-valuenow={percent}
          aria-valuemin={0}
          aria-valuemax={100}
          className="mx-3 mb-1.5 h-1.5 shrink-0 overflow-hidden rounded-full bg-panel"
        >
          <div className="h-full bg-accent" style={{ width: `${percent}%` }} />
        </div>
      )}
      {shown.length > 0 && (
        <ul className="min-h-0 overflow-y-auto pb-1 text-[13px]">
          {shown.map((upload) => (
            <li key={upload.id} className="flex items-center gap-2 px-3 py-0.5">
              <span className="min-w-0 flex-1 truncate">
                <FileName name={upload.parts.join('/')} />
                {upload.state === 'failed' && <span className="text-bad"> {fileReason(upload.error)}</span>}
              </span>
              {upload.state === 'sending' && (
                <>
                  <span className="text-soft tabular-nums">
                    {formatBytes(upload.sentBytes)} of {formatBytes(upload.file?.size ?? 0)}
                  </span>
                  <IconButton
                    size="small"
                    label={`Cancel ${upload.parts.at(-1) ?? ''}`}
                    icon={<X className="size-3.5" />}
                    onClick={() => queue.cancel(upload.id)}
                  />
                </>
              )}
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}
