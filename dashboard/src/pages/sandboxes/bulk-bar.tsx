import type { Sandbox, SandboxInfo } from 'atoll-sdk'
import { Moon, Sun, Trash2, X } from 'lucide-react'
import type { ReactNode } from 'react'
import { formatCount } from '../../lib/format.ts'
import { nameOf, sandboxOf } from '../../sandboxes/sandbox.ts'
import { useCollection } from '../../sandboxes/use-sandboxes.ts'
import { Button, IconButton } from '../../ui/button.tsx'
import { CommandHint, quoted } from '../../ui/commands.tsx'
import { Confirm } from '../../ui/dialog.tsx'
import { type BulkRun, useBulk } from './use-bulk.ts'

/** Ids that a line of a shell shows; more are better chosen by a filter of `atoll ls`. */
const namedMax = 50
const failuresShownMax = 100

/** What can be done with the chosen sandboxes at once, and what came of it. */
export function BulkBar({ chosen, onClear }: { chosen: readonly SandboxInfo[]; onClear: () => void }): ReactNode {
  const { run, start, dismiss } = useBulk()
  const collection = useCollection()
  const running = chosen.filter(({ status }) => status === 'running')
  const asleep = chosen.filter(({ status }) => status === 'hibernated')
  const isBusy = run?.isOver === false
  const begin = (
    words: Pick<BulkRun, 'doing' | 'done'>,
    infos: readonly SandboxInfo[],
    act: (sandbox: Sandbox) => Promise<unknown>,
  ) => {
    start(words, infos, async (info) => {
      await act(sandboxOf(info))
      // A key without the log hears of it by no other way.
      collection.refresh(info.sandboxID)
    })
  }
  if (chosen.length === 0) return run === undefined ? null : <BulkResult run={run} onDismiss={dismiss} />
  const count = formatCount(chosen.length)
  return (
    <div className="flex flex-col gap-2">
      <div
        role="toolbar"
        aria-label="Chosen sandboxes"
        className="flex flex-wrap items-center gap-2 rounded-lg border bg-raised px-3 py-2"
      >
        <span className="mr-2 font-medium tabular-nums">{count} chosen</span>
        <Button
          size="small"
          disabled={running.length === 0 || isBusy}
          onClick={() => begin({ doing: 'Hibernating', done: 'hibernated' }, running, (sandbox) => sandbox.hibernate())}
        >
          <Moon aria-hidden="true" className="size-4" /> Hibernate
          {running.length > 0 && ` ${formatCount(running.length)}`}
        </Button>
        <Button
          size="small"
          disabled={asleep.length === 0 || isBusy}
          onClick={() => begin({ doing: 'Waking', done: 'awake' }, asleep, (sandbox) => sandbox.wake())}
        >
          <Sun aria-hidden="true" className="size-4" /> Wake{asleep.length > 0 && ` ${formatCount(asleep.length)}`}
        </Button>
        <Confirm
          title={`Delete ${count} ${chosen.length === 1 ? 'sandbox' : 'sandboxes'}?`}
          action={`Delete ${count}`}
          trigger={
            <Button size="small" look="danger" disabled={isBusy}>
              <Trash2 aria-hidden="true" className="size-4" /> Delete
            </Button>
          }
          onConfirm={async () => begin({ doing: 'Deleting', done: 'deleted' }, chosen, (sandbox) => sandbox.delete())}
        >
          <p>
            {chosen.length === 1
              ? 'Its disk, memory and processes are lost. Its checkpoints and volumes stay.'
              : 'Their disks, memory and processes are lost. Their checkpoints and volumes stay.'}
          </p>
          <ul aria-label="Chosen" tabIndex={0} className="mt-2 max-h-40 overflow-y-auto text-ink">
            {chosen.slice(0, failuresShownMax).map((info) => (
              <li key={info.sandboxID} className="truncate">
                {nameOf(info)}
              </li>
            ))}
            {chosen.length > failuresShownMax && <li>and {formatCount(chosen.length - failuresShownMax)} more</li>}
          </ul>
        </Confirm>
        {chosen.length <= namedMax && <CommandHint commands={commandsOf(chosen)} />}
        <Button size="small" look="quiet" className="ml-auto" onClick={onClear}>
          Choose none
        </Button>
      </div>
      {run !== undefined && <BulkResult run={run} onDismiss={dismiss} />}
    </div>
  )
}

function BulkResult({ run, onDismiss }: { run: BulkRun; onDismiss: () => void }): ReactNode {
  const { doing, done, total, succeeded, failures, isOver } = run
  const ended = succeeded + failures.length
  return (
    <div role="status" className="flex items-center gap-2 rounded-lg border bg-raised px-3 py-2">
      <div className="min-w-0 flex-1">
        <p>
          {isOver
            ? `${formatCount(succeeded)} ${done}${failures.length > 0 ? `, ${formatCount(failures.length)} failed` : ''}.`
            : `${doing}: ${formatCount(ended)} of ${formatCount(total)}${failures.length > 0 ? `, ${formatCount(failures.length)} failed` : ''}`}
        </p>
        {failures.length > 0 && (
          <ul
            aria-label="What failed"
            // What scrolls must be reached by the keyboard.
            tabIndex={0}
            className="mt-1 max-h-40 overflow-y-auto text-[13px] text-bad"
          >
            {failures.slice(0, failuresShownMax).map(({ id, name, reason }) => (
              <li key={id} className="[overflow-wrap:anywhere]">
                <span className="font-medium">{name}</span>: {reason}
              </li>
            ))}
          </ul>
        )}
      </div>
      {isOver && <IconButton label="Close" icon={<X className="size-4" />} onClick={onDismiss} />}
    </div>
  )
}

function commandsOf(chosen: readonly SandboxInfo[]) {
  const names = chosen.map((info) => quoted(nameOf(info))).join(' ')
  return { cli: `atoll hibernate ${names}\natoll wake ${names}\natoll rm ${names}` }
}
