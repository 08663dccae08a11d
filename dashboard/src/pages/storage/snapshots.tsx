import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { VolumeSnapshotInfo } from 'atoll-sdk'
import { Camera, Trash2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { formatBytes } from '../../lib/format.ts'
import { Button, IconButton } from '../../ui/button.tsx'
import { CommandHint, CommandLines, quoted } from '../../ui/commands.tsx'
import { type Column, DataTable } from '../../ui/data-table.tsx'
import { Confirm } from '../../ui/dialog.tsx'
import { inputLook } from '../../ui/field.tsx'
import { Panel } from '../../ui/page.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { TimeAgo } from '../../ui/time.tsx'
import { snapshotsQuery } from './volume-query.ts'
import { useSubmit } from '../../ui/use-submit.ts'

/** Frozen states of a volume: make, clone, delete. */
export function Snapshots({ volume }: { volume: string }): ReactNode {
  const { data, error, refetch } = useQuery(snapshotsQuery(volume))
  return (
    <Panel title="Snapshots">
      <div className="flex flex-col gap-4">
        <p className="text-soft">
          A snapshot is of one moment, also while a sandbox writes. Clones of it are volumes of their own.
        </p>
        <SnapshotForm volume={volume} />
        {error !== null && <ErrorNote error={error} onRetry={() => void refetch()} />}
        {data === undefined && error === null && <Loading label="Loading the snapshots" rows={2} />}
        {data?.length === 0 && <p className="text-soft">No snapshots yet.</p>}
        {data !== undefined && data.length > 0 && (
          <div className="flex max-h-[28rem] flex-col">
            <DataTable
              label={`Snapshots of ${volume}`}
              rows={data.toReversed()}
              columns={columnsOf(volume)}
              rowId={({ id }) => id}
            />
          </div>
        )}
      </div>
    </Panel>
  )
}

function columnsOf(volume: string): readonly Column<VolumeSnapshotInfo>[] {
  return [
    {
      id: 'name',
      header: 'Name',
      width: 'minmax(7rem,2fr)',
      cell: ({ name }) => (
        <span className="font-medium" title={name}>
          {name}
        </span>
      ),
    },
    {
      id: 'size',
      header: 'Least size of a clone',
      width: '10rem',
      isWideOnly: true,
      isNumeric: true,
      cell: ({ sizeMB }) => formatBytes(sizeMB * 2 ** 20),
    },
    {
      id: 'made',
      header: 'Made',
      width: 'minmax(7rem,8.5rem)',
      isNumeric: true,
      cell: ({ createdAt }) => <TimeAgo time={createdAt} />,
    },
    {
      id: 'acts',
      header: 'Acts',
      width: '6.5rem',
      cell: ({ name }) => <SnapshotActs volume={volume} name={name} />,
    },
  ]
}

function SnapshotActs({ volume, name }: { volume: string; name: string }): ReactNode {
  const queries = useQueryClient()
  return (
    <span className="flex items-center justify-end gap-1">
      <Link
        to="/volumes"
        search={{ new: 'volume', from: `${volume}@${name}` }}
        className="text-accent underline"
        aria-label={`Clone the snapshot ${name}`}
      >
        Clone
      </Link>
      <Confirm
        trigger={<IconButton label={`Delete the snapshot ${name}`} icon={<Trash2 className="size-4" />} />}
        title={`Delete the snapshot ${name} of ${volume}?`}
        action="Delete the snapshot"
        onConfirm={async () => {
          await client.volumes.deleteSnapshot(volume, name)
          await queries.invalidateQueries({ queryKey: ['volumes'] })
        }}
      >
        <p>This state of the volume is lost. The volume itself and clones of the snapshot stay.</p>
        <div className="mt-3 text-ink">
          <CommandLines commands={{ cli: `atoll volume snapshot ${volume} ${quoted(name)} --delete` }} />
        </div>
      </Confirm>
    </span>
  )
}

function SnapshotForm({ volume }: { volume: string }): ReactNode {
  const queries = useQueryClient()
  const [name, setName] = useState('')
  const { submit, isBusy, error } = useSubmit(async () => {
    await client.volumes.snapshot(volume, name.trim())
    setName('')
    await queries.invalidateQueries({ queryKey: ['volumes'] })
  })
  const shown = name.trim() || 'before'
  return (
    <form onSubmit={submit} className="flex flex-col gap-2">
      <div className="flex items-center gap-2">
        <input
          aria-label="Name of the new snapshot"
          className={`${inputLook} max-w-64`}
          placeholder="before"
          required
          maxLength={63}
          autoComplete="off"
          spellCheck={false}
          value={name}
          onChange={({ target }) => setName(target.value)}
        />
        <Button type="submit" isBusy={isBusy}>
          <Camera aria-hidden="true" className="size-4" /> Snapshot
        </Button>
        <CommandHint
          commands={{
            cli: `atoll volume snapshot ${volume} ${quoted(shown)}`,
            curl: { path: `/api/volumes/${volume}/snapshots`, json: { name: shown } },
            sdk: `await client.volumes.snapshot('${volume}', '${shown}')`,
          }}
        />
      </div>
      {error !== undefined && <ErrorNote error={error} />}
    </form>
  )
}
