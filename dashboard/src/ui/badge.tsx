import type { ReactNode } from 'react'
import { cx } from './cx.ts'

const tones = {
  good: 'bg-good-faint text-good',
  warn: 'bg-warn-faint text-warn',
  bad: 'bg-bad-faint text-bad',
  accent: 'bg-accent-faint text-accent',
  plain: 'bg-panel text-soft',
}
export type Tone = keyof typeof tones

/** A word about a state. Color is never its only sign. */
export function Badge({
  tone = 'plain',
  children,
  title,
}: {
  tone?: Tone
  children: ReactNode
  title?: string
}): ReactNode {
  return (
    <span
      title={title}
      className={cx(
        'inline-flex h-5 items-center gap-1 rounded px-1.5 text-xs font-medium whitespace-nowrap',
        tones[tone],
      )}
    >
      {children}
    </span>
  )
}

const toneOfState: Record<string, Tone> = {
  running: 'good',
  ready: 'good',
  idle: 'good',
  works: 'good',
  active: 'good',
  delivered: 'good',
  working: 'accent',
  starting: 'accent',
  creating: 'accent',
  waking: 'accent',
  processing: 'accent',
  building: 'accent',
  hibernated: 'plain',
  ended: 'plain',
  stopped: 'plain',
  paused: 'warn',
  missing: 'warn',
  suspended: 'bad',
  error: 'bad',
  failed: 'bad',
  fails: 'bad',
}

/** The state of a resource, in the word of the API. */
export function StateBadge({ state, title }: { state: string; title?: string }): ReactNode {
  return (
    <Badge tone={toneOfState[state] ?? 'plain'} {...(title === undefined ? {} : { title })}>
      <span aria-hidden="true" className="size-1.5 rounded-full bg-current" />
      {state}
    </Badge>
  )
}
