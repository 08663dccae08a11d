import type { Sandbox } from 'atoll-sdk'
import { Plus } from 'lucide-react'
import { Suspense, useEffect, useRef, useState, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { lazyPart } from '../../../lib/part.ts'
import { useRefresh } from '../../../sandboxes/use-sandboxes.ts'
import { Button } from '../../../ui/button.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { CloseDialog, type ClosedTerminal } from './close-dialog.tsx'
import type { ConnectionState } from './connection.ts'
import { runningCommands } from './running-commands.ts'
import { TerminalBar } from './terminal-bar.tsx'
import type { TerminalPaneHandle } from './terminal-pane.tsx'
import { useReaderMode } from './use-reader-mode.ts'
import { useSandbox } from '../use-sandbox.ts'
import { useTerminals, type TerminalTab } from './use-terminals.ts'

const TerminalPane = lazyPart(async () => (await import('./terminal-pane.tsx')).TerminalPane)

/** Screens that keep what they show while another is in front. One more lets the one go that was not seen for longest. */
const screensMax = 6

/** The terminals of a sandbox, of which one is seen. It fills the height of its parent. */
export function Terminals({ sandboxId }: { sandboxId: string }): ReactNode {
  const may = useMay()
  const { sandbox, info, error, retry } = useSandbox(sandboxId)
  if (!may('sandbox:exec')) {
    return <EmptyState title="No terminal">Your key may look at sandboxes but not run commands in them.</EmptyState>
  }
  if (error !== null && info === undefined) return <ErrorNote error={error} onRetry={retry} />
  if (sandbox === undefined || info === undefined) return <Loading label="Loading the sandbox" />
  if (info.status === 'stopped' || info.status === 'error') {
    return (
      <EmptyState title="No terminal">The sandbox {info.status === 'error' ? 'has failed' : 'has stopped'}.</EmptyState>
    )
  }
  return <OpenTerminals sandbox={sandbox} name={info.name ?? sandboxId} status={info.status} />
}

function OpenTerminals({ sandbox, name, status }: { sandbox: Sandbox; name: string; status: string }): ReactNode {
  const isAsleep = status === 'hibernated'
  const refresh = useRefresh()
  const terminals = useTerminals(sandbox, status === 'running')
  const panes = useRef(new Map<string, TerminalPaneHandle>())
  /** Its screen gets the keys when it is seen. */
  const clicked = useRef<string>(undefined)
  /** The one in front first. */
  const [seen, setSeen] = useState<readonly string[]>([])
  const [rung, setRung] = useState<ReadonlySet<string>>(new Set())
  const [closed, setClosed] = useState<ClosedTerminal>()
  const [busy, setBusy] = useState<'open' | 'close' | 'wake'>()
  const [failure, setFailure] = useState<unknown>()
  const [isForScreenReader, setForScreenReader] = useReaderMode()
  const tabRow = useRef<HTMLDivElement>(null)
  const { tabs } = terminals
  const selected = tabs?.find(({ info }) => info.sessionID === seen[0]) ?? tabs?.at(-1)
  const selectedId = selected?.info.sessionID
  useEffect(() => {
    if (clicked.current !== selectedId || selectedId === undefined) return
    panes.current.get(selectedId)?.focus()
    clicked.current = undefined
  }, [selectedId])
  const screens = new Set([selectedId, ...seen].slice(0, screensMax))

  const select = (id: string) => {
    setSeen((known) => [id, ...known.filter((one) => one !== id)].slice(0, screensMax))
    setRung((known) => new Set([...known].filter((one) => one !== id)))
  }
  const act = async (kind: 'open' | 'close' | 'wake', work: () => Promise<unknown>) => {
    setBusy(kind)
    setFailure(undefined)
    try {
      await work()
    } catch (reason) {
      setFailure(reason)
    } finally {
      setBusy(undefined)
    }
  }
  const open = () =>
    act('open', async () => {
      select(await terminals.open())
      if (isAsleep) refresh(sandbox.id)
    })
  const wake = () =>
    act('wake', async () => {
      // It is asked for something: a key that may use terminals need not have the right to wake.
      await sandbox.terminals()
      refresh(sandbox.id)
    })
  const close = ({ info, label }: TerminalTab) =>
    act('close', async () => {
      const commands = info.running && !isAsleep ? await runningCommands(sandbox, info) : undefined
      if (!info.running || commands?.length === 0) await terminals.close(info)
      else setClosed({ info, label, commands, isAsleep })
    })
  const onState = (id: string, state: ConnectionState) => {
    if (state.type === 'attached') terminals.noteAttached(id)
    if (state.type === 'ended') terminals.noteEnded(id, state.exitCode)
    if (state.type === 'gone') terminals.noteEnded(id, null)
  }
  const ring = (id: string) => {
    if (id !== selectedId) setRung((known) => (known.has(id) ? known : new Set([...known, id])))
  }

  return (
    <div className="flex min-h-96 flex-1 flex-col gap-2">
      {failure !== undefined && <ErrorNote error={failure} />}
      {terminals.error !== null && tabs === undefined && (
        <ErrorNote error={terminals.error} onRetry={terminals.retry} />
      )}
      <div className="flex min-h-0 flex-1 flex-col overflow-hidden rounded-lg border bg-raised">
        <TerminalBar
          ref={tabRow}
          tabs={tabs ?? []}
          selectedId={selectedId}
          rung={rung}
          sandboxName={name}
          sandboxId={sandbox.id}
          isBusy={busy === 'open'}
          isForScreenReader={isForScreenReader}
          onSelect={select}
          onClickTab={(id) => {
            select(id)
            if (id === selectedId) panes.current.get(id)?.focus()
            else clicked.current = id
          }}
          onOpen={() => void open()}
          onClose={(tab) => void close(tab)}
          onFocusScreen={() => selectedId !== undefined && panes.current.get(selectedId)?.focus()}
          onCopy={() => selectedId !== undefined && panes.current.get(selectedId)?.copy()}
          onPaste={() => selectedId !== undefined && panes.current.get(selectedId)?.paste()}
          onReset={() => selectedId !== undefined && panes.current.get(selectedId)?.reset()}
          onReaderMode={() => setForScreenReader(!isForScreenReader)}
        />
        <div className="relative min-h-0 flex-1">
          {selected === undefined && (
            <div className="flex h-full items-center justify-center p-4">
              <Beginning
                state={isAsleep ? 'asleep' : tabs === undefined && terminals.error === null ? 'loading' : 'none'}
                isBusy={busy !== undefined}
                onOpen={() => void open()}
                onWake={() => void wake()}
              />
            </div>
          )}
          <Suspense fallback={<Loading label="Loading the terminal" />}>
            {(tabs ?? [])
              .filter(({ info }) => screens.has(info.sessionID))
              .map(({ info: { sessionID: id } }) => (
                <TerminalPane
                  key={id}
                  ref={(handle) => {
                    if (handle === null) panes.current.delete(id)
                    else panes.current.set(id, handle)
                  }}
                  sandbox={sandbox}
                  terminalId={id}
                  isNew={terminals.newId === id}
                  isShown={id === selectedId}
                  isForScreenReader={isForScreenReader}
                  onState={(state) => onState(id, state)}
                  onBell={() => ring(id)}
                  onLeave={() => tabRow.current?.querySelector<HTMLElement>('[aria-selected=true]')?.focus()}
                />
              ))}
          </Suspense>
        </div>
      </div>
      {closed !== undefined && (
        <CloseDialog
          closed={closed}
          onCancel={() => setClosed(undefined)}
          onClose={async () => {
            await terminals.close(closed.info)
            setClosed(undefined)
          }}
        />
      )}
    </div>
  )
}

function Beginning({
  state,
  isBusy,
  onOpen,
  onWake,
}: {
  state: 'asleep' | 'loading' | 'none'
  isBusy: boolean
  onOpen: () => void
  onWake: () => void
}): ReactNode {
  if (state === 'loading') return <Loading label="Looking for terminals" rows={1} />
  if (state === 'none') {
    return (
      <div className="flex flex-col items-center gap-3 text-center">
        <p className="font-semibold">No terminal is open</p>
        <p className="text-soft">A terminal runs in the sandbox: it stays when you close this page.</p>
        <Button look="primary" isBusy={isBusy} onClick={onOpen}>
          <Plus aria-hidden="true" className="size-4" /> Open a terminal
        </Button>
      </div>
    )
  }
  return (
    <div className="flex flex-col items-center gap-3 text-center">
      <p className="font-semibold">The sandbox is asleep</p>
      <p className="text-soft">Its terminals are kept, and seen again when it is awake.</p>
      <div className="flex flex-wrap justify-center gap-2">
        <Button look="primary" isBusy={isBusy} onClick={onWake}>
          Wake it
        </Button>
        <Button isBusy={isBusy} onClick={onOpen}>
          Wake it with a new terminal
        </Button>
      </div>
    </div>
  )
}
