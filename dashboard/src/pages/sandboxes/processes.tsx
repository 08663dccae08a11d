import { useMutation, useQuery } from '@tanstack/react-query'
import type { SortingState } from '@tanstack/react-table'
import type { SandboxInfo, SystemProcess } from 'atoll-sdk'
import { Ellipsis, RotateCw } from 'lucide-react'
import { useMemo, useState, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { formatBytes, formatCount, formatSeconds } from '../../lib/format.ts'
import { nameOf, sandboxOf } from '../../sandboxes/sandbox.ts'
import { StateBadge } from '../../ui/badge.tsx'
import { Button, IconButton } from '../../ui/button.tsx'
import { CommandHint, quoted } from '../../ui/commands.tsx'
import { type Column, DataTable } from '../../ui/data-table.tsx'
import { Menu } from '../../ui/menu.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { TimeAgo } from '../../ui/time.tsx'
import { useToast } from '../../ui/toasts.tsx'
import { Awake, whileAwake } from './awake.tsx'

const signals = [
  { name: 'TERM', number: 15, does: 'asks it to end' },
  { name: 'INT', number: 2, does: 'as Ctrl-C does' },
  { name: 'HUP', number: 1, does: 'tells many to read their configuration anew' },
  { name: 'STOP', number: 19, does: 'holds it' },
  { name: 'CONT', number: 18, does: 'lets it go on' },
  { name: 'KILL', number: 9, does: 'ends it at once' },
] as const
type Signal = (typeof signals)[number]

/** All processes of a running sandbox, and signals to them. */
export function Processes({ info }: { info: SandboxInfo }): ReactNode {
  return (
    <Awake info={info} what="Its processes">
      <List info={info} />
    </Awake>
  )
}

function List({ info }: { info: SandboxInfo }): ReactNode {
  const id = info.sandboxID
  const [sorting, setSorting] = useState<SortingState>([])
  const toast = useToast()
  // Not below the key of the sandbox: its events would read this of one that has just gone to sleep.
  const { data, error, isFetching, refetch } = useQuery({
    queryKey: ['processes', id],
    staleTime: 0,
    queryFn: ({ signal }) => whileAwake(id, signal, (now) => sandboxOf(now).processes({ signal })),
  })
  const kill = useMutation({
    mutationFn: ({ pid, signal }: { pid: number; signal: Signal }) => sandboxOf(info).signal(pid, signal.number),
    onSuccess: (_answer, { pid, signal }) => toast({ text: `SIG${signal.name} was sent to process ${pid}.` }),
    onSettled: () => refetch(),
  })
  const mayAct = useMay()('sandbox:exec')
  const columns = useMemo(
    () => columnsOf(mayAct ? (pid, signal) => kill.mutate({ pid, signal }) : undefined),
    [kill.mutate, mayAct],
  )
  const name = nameOf(info)
  return (
    <>
      <div className="flex flex-wrap items-center gap-2">
        <span className="text-soft tabular-nums" role="status">
          {data === undefined
            ? ''
            : `${data.length === 1 ? '1 process' : `${formatCount(data.length)} processes`}, as last read`}
        </span>
        <div className="ml-auto flex items-center gap-2">
          <CommandHint
            commands={{
              cli: `atoll ps ${quoted(name)}\natoll kill ${quoted(name)} PID -s TERM`,
              curl: { path: `/api/sandboxes/${name}/processes` },
              sdk: 'await sandbox.processes()\nawait sandbox.signal(pid, 15)',
            }}
          />
          <Button size="small" isBusy={isFetching} onClick={() => void refetch()}>
            <RotateCw aria-hidden="true" className="size-4" /> Read again
          </Button>
        </div>
      </div>
      {kill.error !== null && <ErrorNote error={kill.error} />}
      {error !== null && <ErrorNote error={error} onRetry={() => void refetch()} />}
      {data === undefined ? (
        error === null && <Loading label="Loading processes" rows={6} />
      ) : (
        <DataTable
          label="Processes"
          rows={data}
          columns={columns}
          rowId={({ pid }) => String(pid)}
          sorting={sorting}
          onSort={setSorting}
        />
      )}
    </>
  )
}

function columnsOf(onSignal: ((pid: number, signal: Signal) => void) | undefined): readonly Column<SystemProcess>[] {
  return [
    { id: 'pid', header: 'PID', width: '4.5rem', isNumeric: true, sortBy: ({ pid }) => pid, cell: ({ pid }) => pid },
    {
      id: 'command',
      header: 'Command',
      width: 'minmax(7rem,3fr)',
      sortBy: ({ command }) => command,
      cell: ({ command }) => (
        <bdi className="font-mono text-[13px]" title={command}>
          {command}
        </bdi>
      ),
    },
    {
      id: 'user',
      header: 'User',
      width: 'minmax(4rem,0.6fr)',
      isWideOnly: true,
      sortBy: ({ user }) => user,
      cell: ({ user }) => <bdi>{user}</bdi>,
    },
    {
      id: 'state',
      header: 'State',
      width: '6.5rem',
      isWideOnly: true,
      sortBy: ({ state }) => state,
      cell: ({ state }) => <StateBadge state={state} />,
    },
    {
      id: 'memory',
      header: 'Memory',
      width: '6rem',
      isNumeric: true,
      sortBy: ({ memoryBytes }) => memoryBytes,
      cell: ({ memoryBytes }) => formatBytes(memoryBytes),
    },
    {
      id: 'cpu',
      header: 'CPU time',
      width: '6.5rem',
      isWideOnly: true,
      isNumeric: true,
      sortBy: ({ cpuSeconds }) => cpuSeconds,
      cell: ({ cpuSeconds }) => formatSeconds(cpuSeconds),
    },
    {
      id: 'started',
      header: 'Started',
      width: '9rem',
      isWideOnly: true,
      isNumeric: true,
      sortBy: ({ startedAt }) => Date.parse(startedAt),
      cell: ({ startedAt }) => <TimeAgo time={startedAt} />,
    },
    {
      id: 'acts',
      header: 'Signal',
      isHeaderHidden: true,
      width: '3rem',
      cell: ({ pid }) =>
        // The first is the guest, which holds all others.
        pid === 1 || onSignal === undefined ? null : (
          <Menu
            label={`Signals to process ${pid}`}
            trigger={<IconButton label={`Send a signal to process ${pid}`} icon={<Ellipsis className="size-4" />} />}
            items={signals.map((signal) => ({
              label: `${signal.name}: ${signal.does}`,
              isDanger: signal.name === 'KILL',
              onSelect: () => onSignal(pid, signal),
            }))}
          />
        ),
    },
  ]
}
