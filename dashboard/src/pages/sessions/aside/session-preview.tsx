import type { SessionInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { PreviewFrame } from '../../../preview/preview-frame.tsx'
import { Button } from '../../../ui/button.tsx'
import { EmptyState } from '../../../ui/states.tsx'
import { titleOf } from '../use-session.ts'

const port = 3000

/** The page that the agent makes, live. A sandbox that sleeps is not woken by a look at its session alone. `version` loads the page anew. */
export function SessionPreview({ session, version }: { session: SessionInfo; version: number }): ReactNode {
  const { status, events, previewUrl, sandboxId } = session
  const may = useMay()
  const [isAsked, setAsked] = useState(false)
  if (status === 'ended') {
    return (
      <EmptyState title="The sandbox has ended with the session">
        A capsule or a fork of a turn shows what it has made.
      </EmptyState>
    )
  }
  const isAsleep =
    events.findLast(({ type }) => type === 'sandbox_hibernated' || type === 'sandbox_resumed')?.type ===
    'sandbox_hibernated'
  if (isAsleep && !isAsked) {
    return (
      <EmptyState
        title="The sandbox sleeps"
        actions={<Button onClick={() => setAsked(true)}>Wake it and show the page</Button>}
      >
        It uses no processor and no memory meanwhile. A message wakes it too.
      </EmptyState>
    )
  }
  const isReady = events.some(({ type }) => type === 'preview_ready')
  if (!isReady && !isAsked) {
    return (
      <EmptyState
        title="No page yet"
        actions={<Button onClick={() => setAsked(true)}>Show the preview all the same</Button>}
      >
        The preview opens by itself as soon as something answers on port {port} of the sandbox.
      </EmptyState>
    )
  }
  return (
    <PreviewFrame
      url={previewUrl}
      title={`Preview of ${titleOf(session)}`}
      version={version}
      {...(may('preview') ? { guarded: { sandboxId, port } } : {})}
    />
  )
}
