import { useInfiniteQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { client } from '../../../account/client.ts'
import { cx } from '../../../ui/cx.ts'
import { DataTable } from '../../../ui/data-table.tsx'
import { inputLook } from '../../../ui/field.tsx'
import { whenNearEnd } from '../../../ui/near-end.ts'
import { Panel } from '../../../ui/page.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { columnsOf, itemId } from './breakdown-columns.tsx'
import { Entry } from './entry.tsx'
import { tagsOf, type UsageSearch } from './search.ts'

const pageMax = 100
const groups = [
  ['sandbox', 'Sandboxes'],
  ['session', 'Sessions'],
  ['key', 'Keys'],
  ['tag', 'Values of a tag'],
] as const

/** The window by sandbox, session, key or tag, the greatest first. Its pages come as one scrolls. */
export function Breakdown({
  search,
  window,
  onChange,
}: {
  search: UsageSearch
  window: { from: string; to: string }
  onChange: (change: Pick<UsageSearch, 'by'>) => void
}): ReactNode {
  const { by = 'sandbox', tag } = search
  const tags = tagsOf(tag)
  const usage = useInfiniteQuery({
    queryKey: ['usage', 'items', by, tag, window],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ signal, pageParam: cursor }) =>
      client.usage.get({
        ...{ ...window, groupBy: by, limit: pageMax, signal },
        ...(tags === undefined ? {} : { tags }),
        ...(cursor === undefined ? {} : { cursor }),
      }),
    getNextPageParam: ({ nextCursor }) => nextCursor ?? undefined,
  })
  const items = usage.data?.pages.flatMap((page) => page.items) ?? []
  const untagged = usage.data?.pages[0]?.untagged
  return (
    <Panel title="What it went to" actions={<Choice by={by} onChange={onChange} />}>
      {usage.isPending ? (
        <Loading label="Loading the items" rows={5} />
      ) : usage.isError && items.length === 0 ? (
        <ErrorNote error={usage.error} onRetry={() => void usage.refetch()} />
      ) : items.length === 0 ? (
        <EmptyState title="Nothing was used">Choose another time, or another filter.</EmptyState>
      ) : (
        <>
          <div className="flex h-[28rem] flex-col">
            <DataTable
              label="Usage by item"
              rows={items}
              columns={columnsOf(by)}
              rowId={itemId}
              onView={whenNearEnd(items, () => {
                if (usage.hasNextPage && !usage.isFetching) void usage.fetchNextPage()
              })}
            />
          </div>
          {usage.isError && <ErrorNote error={usage.error} onRetry={() => void usage.fetchNextPage()} />}
          <p className="mt-2 text-[13px] text-soft">
            {by === 'session'
              ? 'By the money of their models.'
              : 'By memory. What is deleted still counts, with the tags and the name that it had last.'}
            {by === 'session' && tags !== undefined && ' Sessions have no tags: the filter does not hold for them.'}
            {untagged !== undefined &&
              untagged.sandboxCount > 0 &&
              ` ${untagged.sandboxCount} sandboxes without the tag are not listed.`}
          </p>
        </>
      )}
    </Panel>
  )
}

function Choice({ by, onChange }: { by: string; onChange: (change: Pick<UsageSearch, 'by'>) => void }): ReactNode {
  const isTag = by.startsWith('tag:')
  const [isChoosingTag, setChoosingTag] = useState(false)
  const choose = (group: string) => {
    setChoosingTag(group === 'tag')
    if (group !== 'tag') onChange(group === 'sandbox' ? {} : { by: group })
  }
  return (
    <div className="flex flex-wrap items-center justify-end gap-2">
      <select
        aria-label="Grouped by"
        value={isTag || isChoosingTag ? 'tag' : by}
        onChange={({ target }) => choose(target.value)}
        className={cx(inputLook, 'max-w-40')}
      >
        {groups.map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
      {(isTag || isChoosingTag) && (
        <Entry
          label="Key of the tag"
          placeholder="team"
          value={isTag ? by.slice('tag:'.length) : ''}
          onEnter={(key) => key !== '' && onChange({ by: `tag:${key}` })}
        />
      )}
    </div>
  )
}
