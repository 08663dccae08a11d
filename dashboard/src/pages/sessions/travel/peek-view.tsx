import { useQuery } from '@tanstack/react-query'
import type { Session, TurnInfo } from 'atoll-sdk'
import { Play, Square } from 'lucide-react'
import { useSyncExternalStore, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { PreviewFrame } from '../../../preview/preview-frame.tsx'
import { Button } from '../../../ui/button.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import type { Peek, PeekState } from './peek.ts'

interface PeekViewProps {
  turn: TurnInfo
  peek: Peek | undefined
  onBegin: () => void
  onEnd: () => void
}

const none: PeekState = { step: 'ended' }
const subscribeToNothing = () => () => undefined

/** The page of the session as it was at the end of a turn, in a copy that lives as long as it is looked at. */
export function PeekView({ turn, peek, onBegin, onEnd }: PeekViewProps): ReactNode {
  const state = useSyncExternalStore(peek?.subscribe ?? subscribeToNothing, () => peek?.state ?? none)
  if (state.step === 'failed') return <ErrorNote error={state.error} onRetry={onBegin} />
  if (state.step === 'ended')
    return (
      <EmptyState
        title={peek === undefined ? 'See the page of then' : 'The copy has ended'}
        actions={
          <Button look="primary" onClick={onBegin}>
            <Play aria-hidden="true" className="size-4" /> See it running
          </Button>
        }
      >
        {aboutCopy(turn)}
      </EmptyState>
    )
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-2">
      <div className="flex flex-wrap items-center gap-2 rounded-md bg-warn-faint px-3 py-1.5 text-[13px] text-warn">
        <p className="min-w-0 flex-1">
          This is a copy of then. What happens in it does not change the session, and it ends when you leave.
        </p>
        <Button size="small" onClick={onEnd}>
          <Square aria-hidden="true" className="size-3.5" /> End the copy
        </Button>
      </div>
      {state.step === 'forking' ? <Loading label="Making a copy" /> : <CopyPage fork={state.fork} />}
    </div>
  )
}

function aboutCopy({ preview, checkpoint }: TurnInfo): string {
  const begin = 'A copy of the session boots from this point and shows its page on port 3000. It ends when you leave.'
  if (preview === 'none') return `${begin} At the end of this turn no page answered there.`
  if (checkpoint === null) return `${begin} No checkpoint of this turn is kept, so it begins at the one before.`
  if (checkpoint.kind === 'disk_only')
    return `${begin} The checkpoint has no memory: servers that ran then do not run in it.`
  return begin
}

function CopyPage({ fork }: { fork: Session }): ReactNode {
  const may = useMay()
  const { data, error, refetch } = useQuery({
    queryKey: ['session', fork.id, 'peek'],
    queryFn: async ({ signal }) => {
      const { activity, events } = await fork.info({ signal })
      return { activity, failure: events.findLast(({ type }) => type === 'session_failed')?.message }
    },
  })
  const { forkedAt } = fork
  return (
    <>
      {forkedAt?.exact === false && (
        <p className="text-[13px] text-warn">
          No checkpoint of this very point is kept: the copy is that after event {forkedAt.afterEvent}.
        </p>
      )}
      {error !== null ? (
        <ErrorNote error={error} onRetry={() => void refetch()} />
      ) : data === undefined || data.activity === 'starting' ? (
        <Loading label="The copy boots" />
      ) : data.activity === 'failed' ? (
        <ErrorNote error={new Error(data.failure ?? 'The copy has failed.')} />
      ) : (
        <PreviewFrame
          url={fork.previewUrl}
          title="The page of then, in a copy"
          {...(may('preview') ? { guarded: { sandboxId: fork.sandboxId, port: 3000 } } : {})}
        />
      )}
    </>
  )
}
