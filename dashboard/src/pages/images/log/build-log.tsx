import type { ImageInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { Panel } from '../../../ui/page.tsx'
import { ErrorNote } from '../../../ui/states.tsx'
import { LogPane } from './log-pane.tsx'
import { useBuildLog, type LogState } from './use-build-log.ts'

const emptyWords: Record<LogState, string> = {
  reading: 'The log is being read.',
  following: 'The build has not said anything yet.',
  broken: 'The connection is cut. It is opened again.',
  complete: 'The build has said nothing.',
  none: 'No log is kept of this image: it was fetched, or built more than thirty days ago.',
}

/** What the build of an image tells, live while it runs. */
export function BuildLog({ image }: { image: ImageInfo }): ReactNode {
  const { state, error, ...view } = useBuildLog(image)
  return (
    <Panel
      title="Log of the build"
      className="flex min-h-80 flex-1 flex-col [&>div]:flex [&>div]:min-h-0 [&>div]:flex-1 [&>div]:flex-col [&>div]:gap-2"
      actions={
        <>
          {state === 'broken' && (
            <span role="status" className="text-warn">
              Connecting again
            </span>
          )}
          {state !== 'none' && (
            <a
              href={`/api/images/${encodeURIComponent(image.id)}/log`}
              download={`${image.name ?? image.id}.log`}
              className="text-accent underline"
            >
              Download
            </a>
          )}
        </>
      }
    >
      {error !== undefined && <ErrorNote error={error} />}
      <LogPane {...view} label="Log of the build" empty={emptyWords[state]} />
    </Panel>
  )
}
