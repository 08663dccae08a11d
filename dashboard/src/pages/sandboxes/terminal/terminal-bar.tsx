import { Accessibility, BellRing, ClipboardCopy, ClipboardPaste, Ellipsis, Plus, RotateCcw, X } from 'lucide-react'
import type { KeyboardEvent, ReactNode, Ref } from 'react'
import { IconButton } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { cx } from '../../../ui/cx.ts'
import { Menu } from '../../../ui/menu.tsx'
import { shell } from './shell.ts'
import type { TerminalTab } from './use-terminals.ts'

interface TerminalBarProps {
  ref: Ref<HTMLDivElement>
  tabs: readonly TerminalTab[]
  selectedId: string | undefined
  /** Those in the background whose bell has rung. */
  rung: ReadonlySet<string>
  sandboxId: string
  sandboxName: string
  isBusy: boolean
  isForScreenReader: boolean
  onSelect: (id: string) => void
  onClickTab: (id: string) => void
  onOpen: () => void
  onClose: (tab: TerminalTab) => void
  onFocusScreen: () => void
  onCopy: () => void
  onPaste: () => void
  onReset: () => void
  onReaderMode: () => void
}

/** The row above the screens: a tab for each terminal, and what can be done with the one in front. */
export function TerminalBar(props: TerminalBarProps): ReactNode {
  const { tabs, selectedId, rung, sandboxId, sandboxName, onSelect, onClose } = props
  const index = tabs.findIndex(({ info }) => info.sessionID === selectedId)
  const selected = tabs[index]
  const onKey = (event: KeyboardEvent<HTMLElement>) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    const next = step === undefined ? undefined : tabs[(index + step + tabs.length) % tabs.length]
    if (next !== undefined) {
      onSelect(next.info.sessionID)
      event.currentTarget.querySelectorAll<HTMLElement>('[role=tab]').item(tabs.indexOf(next)).focus()
    } else if (event.key === 'Enter' || event.key === 'ArrowDown') props.onFocusScreen()
    else if (event.key === 'Delete' && selected !== undefined) onClose(selected)
    else return
    event.preventDefault()
  }
  return (
    <div className="flex items-center gap-1 border-b bg-panel pr-1">
      <div
        ref={props.ref}
        role="tablist"
        aria-label="Terminals"
        className="flex min-w-0 flex-1 self-stretch overflow-x-auto"
        onKeyDown={onKey}
      >
        {tabs.map(({ info: { sessionID, running }, label }) => {
          const isSelected = sessionID === selectedId
          return (
            <button
              key={sessionID}
              type="button"
              role="tab"
              aria-selected={isSelected}
              tabIndex={isSelected ? 0 : -1}
              title={sessionID}
              className={cx(
                'flex h-9 max-w-48 shrink-0 items-center gap-1.5 border-r px-3 text-[13px] -outline-offset-2',
                isSelected ? 'bg-raised font-medium' : 'text-soft hover:text-ink',
              )}
              onClick={() => props.onClickTab(sessionID)}
            >
              <span className="truncate">{label}</span>
              {!running && <span className="text-soft">(ended)</span>}
              {rung.has(sessionID) && <BellRing aria-label="its bell has rung" className="size-3.5 text-warn" />}
            </button>
          )
        })}
      </div>
      <IconButton
        label="New terminal"
        icon={<Plus className="size-4" />}
        isBusy={props.isBusy}
        onClick={props.onOpen}
      />
      <CommandHint
        commands={{
          cli: `atoll shell ${sandboxName}${selectedId === undefined ? '' : ` --attach ${selectedId}`}`,
          curl: { method: 'POST', path: `/api/sandboxes/${sandboxId}/pty`, json: shell },
          sdk: `const terminal = await sandbox.terminal()`,
        }}
      />
      {selected !== undefined && (
        <>
          <Menu
            label="Terminal"
            trigger={<IconButton label="More" icon={<Ellipsis className="size-4" />} />}
            items={[
              { label: 'Copy the selection', icon: <ClipboardCopy className="size-4" />, onSelect: props.onCopy },
              { label: 'Paste', icon: <ClipboardPaste className="size-4" />, onSelect: props.onPaste },
              { label: 'Reset the screen', icon: <RotateCcw className="size-4" />, onSelect: props.onReset },
              {
                label: props.isForScreenReader ? 'Screen reader mode off' : 'Screen reader mode on',
                icon: <Accessibility className="size-4" />,
                onSelect: props.onReaderMode,
              },
            ]}
          />
          <IconButton
            label={`Close ${selected.label}`}
            icon={<X className="size-4" />}
            onClick={() => onClose(selected)}
          />
        </>
      )}
    </div>
  )
}
