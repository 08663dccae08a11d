import { useQuery } from '@tanstack/react-query'
import { type AuditEntryInfo, NotFoundError } from 'atoll-sdk'
import { Filter } from 'lucide-react'
import type { ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { formatTime } from '../../../lib/format.ts'
import { Button } from '../../../ui/button.tsx'
import { CodeLine } from '../../../ui/copy.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { JsonText } from '../../../ui/json-text.tsx'
import { Facts } from '../../../ui/page.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { type ActorNames, actorText } from './actors.ts'
import { AuditStatus } from './columns.tsx'
import type { AuditFilters, AuditPlace } from './entries.ts'

/** One entry, which the list has or which is read by its number. */
export function EntryDialog({
  place: { path },
  number,
  loaded,
  names,
  onFilter,
  onClose,
}: {
  place: AuditPlace
  number: number
  loaded: AuditEntryInfo | undefined
  names: ActorNames
  onFilter: (filters: AuditFilters) => void
  onClose: () => void
}): ReactNode {
  const read = useQuery({
    queryKey: ['audit-entries', path, number],
    enabled: loaded === undefined,
    staleTime: 'static',
    queryFn: async ({ signal }) => {
      // A cursor is the number behind which the page begins.
      const query = { cursor: String(number + 1), limit: 1 }
      const { items } = await client.page<AuditEntryInfo[]>(path, { query, signal })
      const [entry] = items
      if (entry?.number !== number) throw new NotFoundError(`the audit has no entry ${number}, or has it no more`)
      return entry
    },
  })
  const entry = loaded ?? read.data
  return (
    <Dialog title={`Entry ${number}`} size="wide" isOpen onOpenChange={onClose}>
      {entry !== undefined ? (
        <EntryFacts entry={entry} names={names} onFilter={onFilter} />
      ) : read.isError ? (
        <ErrorNote error={read.error} />
      ) : (
        <Loading label="Loading the entry" />
      )}
    </Dialog>
  )
}

function EntryFacts({
  entry,
  names,
  onFilter,
}: {
  entry: AuditEntryInfo
  names: ActorNames
  onFilter: (filters: AuditFilters) => void
}): ReactNode {
  const { ts, actorType, actorId, address, operation, request, subject, status, previousHash, hash } = entry
  const name = actorText(entry, names)
  return (
    <div className="flex flex-col gap-4">
      <Facts
        items={[
          ['Time', formatTime(ts)],
          [
            'Who',
            <span>
              {name}{' '}
              <span className="text-soft">
                {actorId !== null && `${actorType}${name === actorId ? '' : ` ${actorId}`}`}
              </span>
            </span>,
          ],
          ['From', address ?? 'no address'],
          ['Call', <code className="font-mono text-[13px]">{operation}</code>],
          ['Result', <AuditStatus status={status} />],
          ['Request', <code className="font-mono text-[13px] break-all">{request}</code>],
        ]}
      />
      <div>
        <h3 className="mb-1 font-medium">What it was about</h3>
        <JsonText label="What the call was about" value={subject} />
      </div>
      <div className="flex flex-col gap-2">
        <h3 className="font-medium">Its place in the chain</h3>
        <CodeLine text={hash} label="Copy the hash of the entry" />
        <p className="text-[13px] break-all text-soft">
          SHA-256 of the hash before, <code className="font-mono">{previousHash}</code>, and of this entry.
        </p>
      </div>
      <div className="flex flex-wrap justify-end gap-2">
        {actorId !== null && (
          <Button onClick={() => onFilter({ actor: actorId })}>
            <Filter aria-hidden="true" className="size-4" /> Only of {name === actorId ? 'this actor' : 'this key'}
          </Button>
        )}
        <Button onClick={() => onFilter({ operation })}>
          <Filter aria-hidden="true" className="size-4" /> Only this call
        </Button>
      </div>
    </div>
  )
}
