import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Download, RotateCw } from 'lucide-react'
import { type ReactNode, useMemo, useState } from 'react'
import { client } from '../../../account/client.ts'
import { serverNow } from '../../../lib/clock.ts'
import { saveText } from '../../../lib/save.ts'
import { Button, IconButton } from '../../../ui/button.tsx'
import { CommandHint, type Commands, quoted } from '../../../ui/commands.tsx'
import { Menu } from '../../../ui/menu.tsx'
import { Page, Panel } from '../../../ui/page.tsx'
import { ErrorNote, Loading, reasonOf } from '../../../ui/states.tsx'
import { useToast } from '../../../ui/toasts.tsx'
import { LimitMeters } from '../../administration/host/limit-meters.tsx'
import { amountsByDay, type DayAmounts, sumOf } from './amounts.ts'
import { Breakdown } from './breakdown.tsx'
import { Budget } from './budget.tsx'
import { ByDay } from './by-day.tsx'
import { Entry } from './entry.tsx'
import { daysMax, daysOf, windowOf } from './days.ts'
import { RangePicker } from './range-picker.tsx'
import { type Measure, tagsOf, type UsageSearch } from './search.ts'
import { Totals } from './totals.tsx'
import { daysCsv, itemsCsv } from './usage-csv.ts'

export function UsagePage(): ReactNode {
  const search = useSearch({ from: '/shell/usage' })
  const navigate = useNavigate({ from: '/usage' })
  const [readAt, setReadAt] = useState(() => serverNow())
  const { range, from, to, measure, by, tag } = search
  const days = useMemo(() => daysOf({ ...search }, new Date(readAt)), [range, from, to, readAt])
  const window = windowOf(days)
  const usage = useQuery({
    queryKey: ['usage', 'days', window, tag],
    queryFn: ({ signal }) => amountsByDay(days, tag, signal),
    placeholderData: keepPreviousData,
  })
  const limits = useQuery({
    queryKey: ['usage-now', 'limits'],
    queryFn: ({ signal }) => client.limits({ signal }),
  })
  const change = (part: UsageSearch, dropped: readonly (keyof UsageSearch)[]) =>
    void navigate({
      search: (former) => ({
        ...Object.fromEntries(Object.entries(former).filter(([name]) => !dropped.includes(name as keyof UsageSearch))),
        ...part,
      }),
      replace: true,
    })
  return (
    <Page
      title="Usage"
      lead={`Days are of your time zone, ${Intl.DateTimeFormat().resolvedOptions().timeZone}; at most ${daysMax} are shown.`}
      actions={
        <>
          <IconButton
            label="Read again up to now"
            icon={<RotateCw className="size-4" />}
            isBusy={usage.isFetching}
            onClick={() => setReadAt(serverNow())}
          />
          <CommandHint commands={commandsOf(by ?? 'sandbox', window, tag)} />
          <DownloadMenu days={usage.data} by={by ?? 'sandbox'} tag={tag} window={window} />
        </>
      }
    >
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
        <RangePicker
          search={search}
          now={new Date(readAt)}
          onChange={(part) => change(part, ['range', 'from', 'to'])}
        />
        <Entry
          key={tag}
          label="Only sandboxes with this tag, as key=value,other"
          placeholder="tag: team=web,api"
          value={tag ?? ''}
          onEnter={(text) => change(text === '' ? {} : { tag: text }, ['tag'])}
        />
      </div>
      {usage.isPending ? (
        <Loading label="Loading the usage" rows={8} />
      ) : usage.isError ? (
        <ErrorNote error={usage.error} onRetry={() => void usage.refetch()} />
      ) : (
        <>
          <Totals amounts={sumOf(usage.data)} hasModels={tag === undefined} />
          <ByDay
            days={usage.data}
            chosen={measure ?? defaultMeasure(usage.data)}
            onChoose={(one) => change({ measure: one }, [])}
          />
        </>
      )}
      <div className="grid gap-4 lg:grid-cols-2">
        <Panel title="Now">
          {limits.isPending ? (
            <Loading label="Loading the limits" />
          ) : limits.isError ? (
            <ErrorNote error={limits.error} onRetry={() => void limits.refetch()} />
          ) : (
            <LimitMeters {...limits.data} />
          )}
        </Panel>
        {limits.data !== undefined && <Budget limits={limits.data.limits} />}
      </div>
      <Breakdown key={by} search={search} window={window} onChange={(part) => change(part, ['by'])} />
    </Page>
  )
}

function commandsOf(groupBy: string, { from, to }: { from: string; to: string }, tag: string | undefined): Commands {
  const tags = tagsOf(tag)
  const filters = Object.entries(tags ?? {}).map(([key, values]) => [`filter[tag:${key}]`, values.join(',')])
  const query = new URLSearchParams({ groupBy, from, to, ...Object.fromEntries(filters) })
  return {
    cli: `atoll usage --by ${quoted(groupBy)} --from ${from} --to ${to}${tag === undefined ? '' : ` --tag ${quoted(tag)}`}`,
    curl: { path: `/api/usage?${query}` },
    sdk: `await client.usage.get(${JSON.stringify({ groupBy, from, to, ...(tags === undefined ? {} : { tags }) })})`,
  }
}

/** Money where anything has a price. */
function defaultMeasure(days: readonly DayAmounts[]): Measure {
  return days.some(({ computeUsd, modelUsd }) => computeUsd + modelUsd > 0) ? 'cost' : 'memory'
}

function DownloadMenu({
  days,
  by,
  tag,
  window,
}: {
  days: readonly DayAmounts[] | undefined
  by: string
  tag: string | undefined
  window: { from: string; to: string }
}): ReactNode {
  const toast = useToast()
  const [isBusy, setBusy] = useState(false)
  const saveItems = async () => {
    setBusy(true)
    try {
      const { text, isCut } = await itemsCsv({ ...window, groupBy: by, tag })
      saveText(`usage-by-${by.replaceAll(/[^\w-]/g, '-')}.csv`, text, 'text/csv')
      if (isCut) toast({ text: 'The file has the first 10 000 rows. Choose a shorter time for all of them.' })
    } catch (error) {
      toast({ tone: 'bad', text: reasonOf(error) })
    } finally {
      setBusy(false)
    }
  }
  return (
    <Menu
      label="Download as CSV"
      trigger={
        <Button isBusy={isBusy}>
          <Download aria-hidden="true" className="size-4" /> CSV
        </Button>
      }
      items={[
        days && { label: 'By day', onSelect: () => saveText('usage-by-day.csv', daysCsv(days), 'text/csv') },
        { label: `By ${by}`, onSelect: () => void saveItems() },
      ]}
    />
  )
}
