import { useQuery, useQueryClient } from '@tanstack/react-query'
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router'
import type { VolumeDetails } from 'atoll-sdk'
import { CopyPlus, Trash2 } from 'lucide-react'
import type { ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { client } from '../../account/client.ts'
import { formatBytes, formatCount } from '../../lib/format.ts'
import { Badge } from '../../ui/badge.tsx'
import { Button } from '../../ui/button.tsx'
import { CommandHint, CommandLines } from '../../ui/commands.tsx'
import { Confirm } from '../../ui/dialog.tsx'
import { Meter } from '../../ui/meter.tsx'
import { Facts, Page, Panel } from '../../ui/page.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { TimeAgo } from '../../ui/time.tsx'
import { MountDialog } from './mount-dialog.tsx'
import { Snapshots } from './snapshots.tsx'
import { volumeQuery } from './volume-query.ts'

const route = getRouteApi('/shell/volumes/$volume')

/** Sandboxes that are drawn. */
const sandboxesMax = 200

export function VolumePage(): ReactNode {
  const { volume } = route.useParams()
  return <Volume key={volume} name={volume} />
}

function Volume({ name }: { name: string }): ReactNode {
  const mayStart = useMay()('sandbox:write')
  const { data, error, refetch } = useQuery(volumeQuery(name))
  return (
    <Page
      title={name}
      actions={
        data !== undefined && (
          <>
            <CommandHint
              commands={{
                cli: `atoll volume get ${name}`,
                curl: { path: `/api/volumes/${name}` },
                sdk: `const volume = await client.volumes.get('${name}')`,
              }}
            />
            <Link
              to="/volumes"
              search={{ new: 'volume', from: name }}
              className="inline-flex h-8 items-center gap-1.5 rounded-md border bg-raised px-3 font-medium hover:border-accent"
            >
              <CopyPlus aria-hidden="true" className="size-4" /> Clone
            </Link>
            <DeleteVolume volume={data} />
            {mayStart && <MountDialog name={name} hasWriter={data.mountedBy.some(({ readOnly }) => !readOnly)} />}
          </>
        )
      }
    >
      {error !== null && <ErrorNote error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <Loading label="Loading the volume" rows={6} />}
      {data !== undefined && (
        <div className="grid grid-cols-1 items-start gap-4 lg:grid-cols-[24rem_minmax(0,1fr)]">
          <div className="flex flex-col gap-4">
            <VolumeFacts volume={data} />
            <Attached volume={data} />
          </div>
          <Snapshots volume={name} />
        </div>
      )}
    </Page>
  )
}

function VolumeFacts({ volume }: { volume: VolumeDetails }): ReactNode {
  const { id, sizeMB, usedBytes, from, generation, createdAt } = volume
  const sizeBytes = sizeMB * 2 ** 20
  return (
    <Panel title="Facts">
      <div className="flex flex-col gap-4">
        {usedBytes === undefined ? (
          <p className="text-warn">Its data is missing on the machine of the server.</p>
        ) : (
          <Meter
            label="Used"
            value={usedBytes}
            max={sizeBytes}
            text={`${formatBytes(usedBytes)} of ${formatBytes(sizeBytes)}`}
          />
        )}
        <Facts
          items={[
            [
              'Id',
              <code key="id" className="font-mono text-[13px]">
                {id}
              </code>,
            ],
            ['Made', <TimeAgo key="made" time={createdAt} />],
            ...(from === undefined ? [] : [['Clone of', from] as const]),
            ...(generation === undefined
              ? []
              : [
                  [
                    'Generation',
                    <span key="generation" title="Grows with the changes that have reached the disk">
                      {formatCount(generation)}
                    </span>,
                  ] as const,
                ]),
          ]}
        />
      </div>
    </Panel>
  )
}

function Attached({ volume: { name, mountedBy } }: { volume: VolumeDetails }): ReactNode {
  const mayRead = useMay()('sandbox:read')
  return (
    <Panel title={`Sandboxes (${formatCount(mountedBy.length)})`}>
      {mountedBy.length === 0 ? (
        <>
          <p className="mb-3 text-soft">No sandbox has it. It is mounted when one is created.</p>
          <CommandLines
            commands={{
              cli: `atoll create --volume ${name}:/data`,
              sdk: `await Sandbox.create({ volumes: [{ name: '${name}', path: '/data' }] })`,
            }}
          />
        </>
      ) : (
        <ul className="-my-1 divide-y">
          {mountedBy.slice(0, sandboxesMax).map(({ sandboxID, path, readOnly }) => (
            <li key={`${sandboxID} ${path}`} className="flex items-center gap-2 py-1.5">
              <span className="min-w-0 flex-1">
                {mayRead ? (
                  <Link
                    to="/sandboxes/$sandboxId"
                    params={{ sandboxId: sandboxID }}
                    className="block truncate text-accent underline"
                  >
                    {sandboxID}
                  </Link>
                ) : (
                  <span className="block truncate">{sandboxID}</span>
                )}
                <span className="block truncate text-[13px] text-soft" title={path}>
                  at {path}
                </span>
              </span>
              <Badge tone={readOnly ? 'plain' : 'accent'}>{readOnly ? 'reads' : 'writes'}</Badge>
            </li>
          ))}
          {mountedBy.length > sandboxesMax && (
            <li className="py-1.5 text-soft">and {formatCount(mountedBy.length - sandboxesMax)} more</li>
          )}
        </ul>
      )}
    </Panel>
  )
}

function DeleteVolume({ volume: { name, mountedBy, usedBytes } }: { volume: VolumeDetails }): ReactNode {
  const queries = useQueryClient()
  const navigate = useNavigate()
  const run = async () => {
    await client.volumes.delete(name)
    await navigate({ to: '/volumes' })
    await queries.invalidateQueries({ queryKey: ['volumes', 'list'] })
  }
  return (
    <Confirm
      trigger={
        <Button look="danger">
          <Trash2 aria-hidden="true" className="size-4" /> Delete
        </Button>
      }
      title={`Delete the volume ${name}?`}
      action="Delete the volume"
      onConfirm={run}
    >
      <p>
        All that it holds is lost for good{usedBytes === undefined ? '' : `: ${formatBytes(usedBytes)}`}. Its clones
        stay.
      </p>
      {mountedBy.length > 0 && (
        <p className="mt-2">
          {formatCount(mountedBy.length)} {mountedBy.length === 1 ? 'sandbox has' : 'sandboxes have'} it, awake or
          asleep: the server refuses this until {mountedBy.length === 1 ? 'that is' : 'those are'} deleted.
        </p>
      )}
      <div className="mt-3 text-ink">
        <CommandLines commands={{ cli: `atoll volume rm ${name}` }} />
      </div>
    </Confirm>
  )
}
