import type { ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { cx } from '../../../ui/cx.ts'
import { inputLook } from '../../../ui/field.tsx'
import { dateText } from './days.ts'
import { type Range, rangeDefault, ranges, type UsageSearch } from './search.ts'

const labels: Record<Range, string> = { '7d': '7 days', '30d': '30 days', '90d': '90 days', month: 'This month' }

/** The window: one that ends now, or from one day to another. */
export function RangePicker({
  search,
  now,
  onChange,
}: {
  search: UsageSearch
  now: Date
  onChange: (change: Pick<UsageSearch, 'range' | 'from' | 'to'>) => void
}): ReactNode {
  const { range = rangeDefault, from, to } = search
  const isOwn = from !== undefined || to !== undefined
  const today = dateText(now)
  const day = (label: string, value: string | undefined, change: (day: string | undefined) => void) => (
    <input
      type="date"
      aria-label={label}
      title={label}
      max={today}
      value={value ?? ''}
      onChange={({ target }) => change(target.value === '' ? undefined : target.value)}
      className={cx(inputLook, 'w-36')}
    />
  )
  const own = (change: Pick<UsageSearch, 'from' | 'to'>) => {
    const next = { ...(from === undefined ? {} : { from }), ...(to === undefined ? {} : { to }), ...change }
    onChange(Object.fromEntries(Object.entries(next).filter(([, value]) => value !== undefined)))
  }
  return (
    <div role="group" aria-label="Time" className="flex flex-wrap items-center gap-2">
      <div className="flex overflow-hidden rounded-md border">
        {ranges.map((one) => (
          <Button
            key={one}
            look="quiet"
            aria-pressed={!isOwn && one === range}
            className={cx('rounded-none border-0', !isOwn && one === range && 'bg-accent-faint text-ink')}
            onClick={() => onChange(one === rangeDefault ? {} : { range: one })}
          >
            {labels[one]}
          </Button>
        ))}
      </div>
      <div className="flex items-center gap-1">
        {day('First day', from, (value) => own({ from: value } as UsageSearch))}
        <span aria-hidden="true">–</span>
        {day('Last day', to, (value) => own({ to: value } as UsageSearch))}
      </div>
    </div>
  )
}
