import { Check, ChevronRight, CircleDashed, CircleX, LoaderCircle } from 'lucide-react'
import { useMemo, type ReactNode } from 'react'
import { formatSeconds } from '../../../lib/format.ts'
import { cx } from '../../../ui/cx.ts'
import { toolStateOf, type ToolRow, type ToolState } from '../stream/rows.ts'
import { CodeText } from './code-text.tsx'
import { plainText } from './plain-text.ts'
import { RowFrame } from './row-frame.tsx'
import { inOneLine, toolInputOf } from './tool-input.ts'

const states: Record<ToolState, { icon: ReactNode; text: string }> = {
  running: { icon: <LoaderCircle className="size-4 animate-spin text-accent" />, text: 'runs' },
  done: { icon: <Check className="size-4 text-good" />, text: 'done' },
  failed: { icon: <CircleX className="size-4 text-bad" />, text: 'failed' },
  unfinished: { icon: <CircleDashed className="size-4 text-soft" />, text: 'has no end: the turn ended first' },
}

interface ToolCallProps {
  row: ToolRow
  isOpen: boolean
  onToggle: (key: string) => void
}

/** A call of a tool in one line, and its input and outcome when it is opened. */
export function ToolCall({ row, isOpen, onToggle }: ToolCallProps): ReactNode {
  const { tool, input, end, key } = row
  const read = useMemo(() => (input === undefined ? undefined : toolInputOf(tool, input)), [tool, input])
  const state = toolStateOf(row)
  const summary = end === undefined ? undefined : plainText(end.summary)
  return (
    <RowFrame event={row.event}>
      <div className={cx('min-w-0 rounded-md border', state === 'failed' && 'border-bad')}>
        <button
          type="button"
          aria-expanded={isOpen}
          onClick={() => onToggle(key)}
          className="flex min-h-8 w-full min-w-0 items-center gap-2 rounded-md px-2 text-left hover:bg-panel"
        >
          <ChevronRight aria-hidden="true" className={cx('size-4 shrink-0 text-soft', isOpen && 'rotate-90')} />
          <span aria-hidden="true" className="shrink-0">
            {states[state].icon}
          </span>
          <span className="max-w-32 shrink-0 truncate font-mono text-[13px] font-medium">{tool}</span>
          <bdi className="min-w-0 flex-1 truncate text-soft">{inOneLine(summary ?? read?.brief ?? '')}</bdi>
          <span className="sr-only">{states[state].text}</span>
          {end !== undefined && (
            <span className="shrink-0 text-xs text-soft tabular-nums">{formatSeconds(end.durationMs / 1000)}</span>
          )}
        </button>
        {isOpen && (
          <div className="flex flex-col gap-2 border-t p-2">
            {read === undefined ? (
              <p className="text-[13px] text-soft">The input is in earlier events.</p>
            ) : (
              read.parts.map(({ label, text }) => (
                <div key={label}>
                  <p className="mb-1 text-xs font-medium text-soft">{label}</p>
                  <CodeText label={`${label} of ${tool}`} text={text} />
                </div>
              ))
            )}
            <div>
              <p className="mb-1 text-xs font-medium text-soft">Outcome</p>
              <p className="break-words whitespace-pre-wrap">{summary ?? `The call ${states[state].text}.`}</p>
            </div>
          </div>
        )}
      </div>
    </RowFrame>
  )
}
