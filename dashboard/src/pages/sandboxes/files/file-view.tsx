import { useQuery } from '@tanstack/react-query'
import { NotFoundError, type Sandbox, type SandboxInfo } from 'atoll-sdk'
import { ArrowLeft } from 'lucide-react'
import { useEffect, useEffectEvent, useState, type ReactNode } from 'react'
import { formatBytes } from '../../../lib/format.ts'
import { nameOf } from '../../../sandboxes/sandbox.ts'
import { Button, IconButton } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { Asleep } from './asleep.tsx'
import { fileCommands } from './commands.ts'
import { DownloadLink } from './download-link.tsx'
import { FileFacts } from './file-facts.tsx'
import { FileName } from './file-name.tsx'
import { fileReason } from './file-reason.ts'
import { ImageView } from './image-view.tsx'
import { keyOf, nameOfPlace, type Place } from './place.ts'
import { readFile, type ReadFile } from './read-file.ts'
import type { FileConflict } from './save-text.ts'
import { TextEditor } from './text-editor.tsx'

interface FileViewProps {
  sandbox: Sandbox
  info: SandboxInfo
  place: Place
  /** What somebody has done to it since it was read. */
  conflict: FileConflict | undefined
  mayWrite: boolean
  awake: () => Promise<boolean>
  /** Wakes the sandbox without a question. */
  onWake: () => Promise<void>
  onClose: () => void
  /** What is shown is what the sandbox has now. `size` in bytes. */
  onFresh: (size: number, modifiedAt: string) => void
}

/** One file: a text to change, an image, or what there is to say about it. */
export function FileView(props: FileViewProps): ReactNode {
  const [generation, setGeneration] = useState(0)
  return (
    <Reading key={generation} {...props} generation={generation} onReadAgain={() => setGeneration(generation + 1)} />
  )
}

function Reading(props: FileViewProps & { generation: number; onReadAgain: () => void }): ReactNode {
  const { sandbox, info, place, conflict, awake, onWake, onClose, onReadAgain } = props
  const isAwake = info.status === 'running'
  const { data, error, refetch } = useQuery({
    queryKey: ['file', sandbox.id, keyOf(place), props.generation],
    queryFn: ({ signal }) => readFile(sandbox.files, place, signal),
    // What is read is not read again behind an editor, and a sandbox that sleeps is not woken.
    enabled: (query) => isAwake && query.state.data === undefined,
    structuralSharing: false,
    gcTime: 0,
    retry: false,
  })
  const onFresh = useEffectEvent(props.onFresh)
  useEffect(() => {
    if (data !== undefined) onFresh(data.size, data.info.modifiedAt)
  }, [data])
  return (
    <section aria-label={`File ${nameOfPlace(place)}`} className="flex min-h-0 min-w-0 flex-1 flex-col">
      <header className="flex min-h-11 flex-wrap items-center gap-x-2 gap-y-1 border-b px-2 py-1.5">
        <IconButton label="Close the file" icon={<ArrowLeft className="size-4" />} onClick={onClose} />
        <h2 className="min-w-0 flex-1 truncate font-medium" title={place.path}>
          <FileName name={nameOfPlace(place)} />
        </h2>
        {data !== undefined && (
          <span className="text-[13px] whitespace-nowrap text-soft">
            {formatBytes(data.size)}
            <span className="max-sm:hidden">
              {' '}
              · <TimeAgo time={data.info.modifiedAt} />
            </span>
          </span>
        )}
        <DownloadLink sandboxId={sandbox.id} place={place} isAsleep={!isAwake} awake={awake} isIcon />
        <CommandHint commands={fileCommands(nameOf(info), sandbox.id, place)} />
      </header>
      {conflict !== undefined && (
        <div role="status" className="flex items-center gap-2 border-b bg-warn-faint px-3 py-1.5 text-warn">
          <span className="min-w-0 flex-1">
            {conflict === 'removed' ? 'This file was removed' : 'This file has changed on the disk'} since it was read.
          </span>
          {conflict === 'changed' && (
            <Button size="small" onClick={onReadAgain}>
              Read it again
            </Button>
          )}
        </div>
      )}
      {data !== undefined ? (
        <Content {...props} file={data} />
      ) : (
        <div className="p-4">
          {error instanceof NotFoundError ? (
            <EmptyState title="There is no such file">It was removed or renamed.</EmptyState>
          ) : error !== null ? (
            <ErrorNote error={new Error(fileReason(error))} onRetry={() => void refetch()} />
          ) : isAwake ? (
            <Loading label="Reading the file" />
          ) : (
            <Asleep action="Wake it and read the file" onWake={onWake} />
          )}
        </div>
      )}
    </section>
  )
}

function Content(props: FileViewProps & { file: ReadFile; onReadAgain: () => void }): ReactNode {
  const { file, place } = props
  const { content } = file
  switch (content.type) {
    case 'text':
      return (
        <TextEditor
          files={props.sandbox.files}
          place={place}
          read={{ info: file.info, content }}
          mayWrite={props.mayWrite}
          awake={props.awake}
          onReadAgain={props.onReadAgain}
          onSaved={({ size, modifiedAt }) => props.onFresh(size, modifiedAt)}
        />
      )
    case 'image':
      return <ImageView blob={content.blob} name={nameOfPlace(place)} />
    case 'binary':
      return <FileFacts file={file} isLarge={content.isLarge} />
  }
}
