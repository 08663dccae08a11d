import { Bot, CircleAlert, Layers, Link as LinkIcon, Undo2 } from 'lucide-react'
import { use, type ReactNode } from 'react'
import { formatBytes, formatSeconds } from '../../../lib/format.ts'
import { Badge } from '../../../ui/badge.tsx'
import { CopyButton } from '../../../ui/copy.tsx'
import { cx } from '../../../ui/cx.ts'
import type { CapsuleRow, CheckpointRow, ErrorRow, NoteRow, RewoundRow } from '../stream/rows.ts'
import { adviceFor, wordsOf } from './advice.ts'
import { BoundedText } from './bounded-text.tsx'
import { ConversationContext } from './conversation-context.ts'
import { plainText } from './plain-text.ts'
import { RowFrame } from './row-frame.tsx'

const errorMax = 2000
const adoptedMax = 500

/** Something failed: what, and what can be done. */
export function ErrorNotice({ row: { event, error } }: { row: ErrorRow }): ReactNode {
  const help = adviceFor(error.code)
  return (
    <RowFrame event={event}>
      <div
        className={cx(
          'flex gap-2 rounded-md px-3 py-2',
          error.fatal ? 'bg-bad-faint text-bad' : 'bg-warn-faint text-warn',
        )}
      >
        <CircleAlert aria-hidden="true" className="mt-0.5 size-4 shrink-0" />
        <div className="flex min-w-0 flex-col gap-1">
          <BoundedText text={plainText(wordsOf(error.message))} charsMax={errorMax}>
            {(shown) => <p className="break-words whitespace-pre-wrap">{shown}</p>}
          </BoundedText>
          <p className="text-[13px] break-words text-ink">
            <code className="mr-2 font-mono text-xs text-soft">{error.code}</code>
            {help}
          </p>
        </div>
      </div>
    </RowFrame>
  )
}

function Line({ event, icon, children }: { event: number; icon: ReactNode; children: ReactNode }): ReactNode {
  return (
    <RowFrame event={event}>
      <div className="flex min-h-6 items-start gap-2 px-1 text-[13px] text-soft">
        <span aria-hidden="true" className="mt-0.5 shrink-0">
          {icon}
        </span>
        <div className="min-w-0 flex-1 break-words">{children}</div>
      </div>
    </RowFrame>
  )
}

export function CheckpointNotice({ row: { event, checkpoint } }: { row: CheckpointRow }): ReactNode {
  const { kind, size_bytes: size, duration_ms: durationMs } = checkpoint
  return (
    <Line event={event} icon={<Layers className="size-3.5" />}>
      <span title={checkpoint.checkpoint_id}>
        Checkpoint: {kind === 'full' ? 'disk and memory' : 'disk'}, {formatBytes(size)}, in{' '}
        {formatSeconds(durationMs / 1000)}
      </span>
    </Line>
  )
}

const backTo = {
  all: 'Files, processes and the conversation',
  machine: 'Files and processes',
  conversation: 'The conversation',
} as const

export function RewoundNotice({ row }: { row: RewoundRow }): ReactNode {
  const { event, rewound } = row
  const { adoptedBy } = use(ConversationContext)
  const adopted = adoptedBy(row)
  return (
    <RowFrame event={event}>
      <div className="flex flex-col gap-2 rounded-md border border-accent px-3 py-2">
        <p className="flex items-start gap-2">
          <Undo2 aria-hidden="true" className="mt-0.5 size-4 shrink-0 text-accent" />
          <span>
            {backTo[rewound.what]} went to event {rewound.to_event}.
            {adopted.length > 0 && ' They are those of a fork that was adopted.'}
          </span>
        </p>
        {adopted.map(({ id, role, content }) => (
          <p key={id} className="border-l-2 pl-3 break-words whitespace-pre-wrap">
            <Badge>{role}</Badge> {plainText(content.slice(0, adoptedMax))}
            {content.length > adoptedMax && ' …'}
          </p>
        ))}
      </div>
    </RowFrame>
  )
}

export function CapsuleNotice({ row: { event, capsule } }: { row: CapsuleRow }): ReactNode {
  return (
    <Line event={event} icon={<LinkIcon className="size-3.5" />}>
      <span className="flex min-w-0 items-center gap-1">
        <span className="min-w-0 truncate">
          The failed turn has a link that shows it to whoever has it: {capsule.url}
        </span>
        <CopyButton text={capsule.url} label="Copy the link of the failed turn" />
      </span>
    </Line>
  )
}

export function Note({ row: { event, text } }: { row: NoteRow }): ReactNode {
  return (
    <Line event={event} icon={<Bot className="size-3.5" />}>
      {plainText(text)}
    </Line>
  )
}
