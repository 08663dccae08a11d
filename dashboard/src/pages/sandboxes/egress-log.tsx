import type { EgressEntryInfo, SandboxInfo } from 'atoll-sdk'
import { useEffect, useState, type ReactNode } from 'react'
import { formatBytes, formatCount, formatTime } from '../../lib/format.ts'
import { nameOf, sandboxOf } from '../../sandboxes/sandbox.ts'
import { Badge, type Tone } from '../../ui/badge.tsx'
import { CommandHint, quoted } from '../../ui/commands.tsx'
import { type Column, DataTable } from '../../ui/data-table.tsx'
import { SelectField } from '../../ui/field.tsx'
import { EmptyState, ErrorNote, Loading } from '../../ui/states.tsx'

type Decision = EgressEntryInfo['decision']

const decisions: Record<Decision, { tone: Tone; text: string }> = {
  allowed: { tone: 'good', text: 'allowed' },
  denied: { tone: 'bad', text: 'denied' },
  would_deny: { tone: 'warn', text: 'would be denied' },
  failed: { tone: 'warn', text: 'failed' },
}

/** Entries that are read at first, and kept as they come. */
const readMax = 500
const keptMax = 2000
const drawnEveryMs = 250

/** Connections, requests and names that the sandbox asked for outside, as they come. `isOpen`: nothing holds it, so nothing is recorded. */
export function EgressLog({ info, isOpen }: { info: SandboxInfo; isOpen: boolean }): ReactNode {
  const [decision, setDecision] = useState<Decision>()
  const [attempt, setAttempt] = useState(0)
  const { entries, error } = useEntries(info, decision, attempt)
  const isCut = (entries?.length ?? 0) >= keptMax
  return (
    <section aria-label="What it has asked for" className="flex min-h-0 flex-col gap-3">
      <div className="flex flex-wrap items-end gap-3">
        <h2 className="text-base font-semibold">What it has asked for</h2>
        <div className="ml-auto flex items-end gap-2">
          <SelectField
            label="Shown"
            value={decision ?? ''}
            onChange={({ target }) => setDecision(target.value === '' ? undefined : (target.value as Decision))}
          >
            <option value="">all</option>
            {Object.entries(decisions).map(([value, { text }]) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </SelectField>
          <CommandHint
            commands={{
              cli: `atoll egress log ${quoted(nameOf(info))} --follow${decision === undefined ? '' : ` --decision ${decision}`}`,
              curl: { path: `/api/sandboxes/${nameOf(info)}/egress/log?after=newest` },
              sdk: 'for await (const entry of sandbox.egress.follow()) console.log(entry)',
            }}
          />
        </div>
      </div>
      {error !== undefined && <ErrorNote error={error} onRetry={() => setAttempt(attempt + 1)} />}
      {entries === undefined && error === undefined && <Loading label="Loading connections" />}
      {entries?.length === 0 && (
        <EmptyState title="Nothing is recorded">
          {isOpen
            ? 'Nothing holds this sandbox, so its connections are not recorded. A policy that only records changes that.'
            : 'Connections appear here when they end or are refused.'}
        </EmptyState>
      )}
      {entries !== undefined && entries.length > 0 && (
        <div className="flex h-[32rem] flex-col gap-2">
          {isCut && <p className="text-soft">The newest {formatCount(keptMax)} are shown.</p>}
          <DataTable
            label="What the sandbox has asked for, newest first"
            rows={entries}
            columns={columns}
            rowId={({ number }) => String(number)}
            rowHeightPx={52}
          />
        </div>
      )}
    </section>
  )
}

/** Newest first; undefined until the first page is there. */
function useEntries(
  info: SandboxInfo,
  decision: Decision | undefined,
  attempt: number,
): { entries: readonly EgressEntryInfo[] | undefined; error: unknown } {
  const [entries, setEntries] = useState<readonly EgressEntryInfo[]>()
  const [error, setError] = useState<unknown>()
  const { sandboxID: id } = info
  useEffect(() => {
    const closed = new AbortController()
    const { signal } = closed
    const { egress } = sandboxOf(info)
    let fresh: EgressEntryInfo[] = []
    // A flood is drawn a few times a second.
    const timer = setInterval(() => {
      if (fresh.length === 0) return
      const come = fresh.toReversed()
      fresh = []
      setEntries((known = []) => [...come, ...known].slice(0, keptMax))
    }, drawnEveryMs)
    setEntries(undefined)
    setError(undefined)
    const read = async () => {
      const first = await egress.log({ after: 'newest', limit: readMax, decision, signal })
      if (signal.aborted) return
      setEntries(first.toReversed())
      for await (const entry of egress.follow({ after: first.at(-1)?.number ?? 0, decision, signal })) {
        fresh.push(entry)
        if (fresh.length > keptMax) fresh.shift()
      }
    }
    read().catch((reason: unknown) => {
      if (!signal.aborted) setError(reason)
    })
    return () => {
      clearInterval(timer)
      closed.abort()
    }
    // Whatever else is known of the sandbox does not change what it has asked for.
  }, [id, decision, attempt])
  return { entries, error }
}

const columns: readonly Column<EgressEntryInfo>[] = [
  {
    id: 'decision',
    header: 'Decision',
    width: '7.5rem',
    cell: ({ decision }) => <Badge tone={decisions[decision].tone}>{decisions[decision].text}</Badge>,
  },
  {
    id: 'what',
    header: 'What',
    width: 'minmax(10rem,2fr)',
    cell: (entry) => <What entry={entry} />,
  },
  {
    id: 'why',
    header: 'By',
    width: 'minmax(6rem,1fr)',
    isWideOnly: true,
    cell: ({ rule, reason, secrets }) => (
      <span className="flex flex-col text-[13px] leading-tight text-soft">
        <bdi className="truncate" title={rule}>
          {rule ?? 'no rule'}
        </bdi>
        {(reason !== undefined || secrets !== undefined) && (
          <bdi className="truncate" title={reason}>
            {reason ?? `with ${secrets?.join(', ') ?? ''}`}
          </bdi>
        )}
      </span>
    ),
  },
  {
    id: 'bytes',
    header: 'Sent, received',
    width: '9rem',
    isWideOnly: true,
    isNumeric: true,
    cell: ({ sentBytes, receivedBytes }) => `${formatBytes(sentBytes)}, ${formatBytes(receivedBytes)}`,
  },
  {
    id: 'time',
    header: 'Time',
    width: '13rem',
    isWideOnly: true,
    isNumeric: true,
    cell: ({ ts }) => <span className="text-[13px] text-soft">{formatTime(ts)}</span>,
  },
]

function What({ entry }: { entry: EgressEntryInfo }): ReactNode {
  const { protocol, host, address, port, method, path, status } = entry
  const target = `${host ?? address ?? ''}:${port}`
  return (
    <span className="flex flex-col leading-tight">
      <bdi className="truncate font-mono text-[13px]" title={target}>
        {target}
      </bdi>
      <bdi className="truncate text-[13px] text-soft" title={path}>
        {[protocol, method, path, status === undefined ? undefined : `answer ${status}`]
          .filter((text) => text !== undefined)
          .join(' ')}
      </bdi>
    </span>
  )
}
