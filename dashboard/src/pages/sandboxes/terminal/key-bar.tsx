import type { ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'

const keys = [
  { label: 'Esc', name: 'Escape', input: '\x1b' },
  { label: 'Tab', name: 'Tab', input: '\t' },
  { label: '^C', name: 'Control C', input: '\x03' },
  { label: '^D', name: 'Control D', input: '\x04' },
  { label: '^Z', name: 'Control Z', input: '\x1a' },
  { label: '↑', name: 'Arrow up', input: '\x1b[A' },
  { label: '↓', name: 'Arrow down', input: '\x1b[B' },
  { label: '←', name: 'Arrow left', input: '\x1b[D' },
  { label: '→', name: 'Arrow right', input: '\x1b[C' },
] as const

/** Keys that the keyboard of a phone lacks. */
export function KeyBar({ onKey, onPaste }: { onKey: (input: string) => void; onPaste: () => void }): ReactNode {
  return (
    <div
      role="toolbar"
      aria-label="Keys"
      className="hidden shrink-0 gap-1 overflow-x-auto border-t p-1 pointer-coarse:flex max-md:flex"
      // The keyboard of the phone stays open.
      onPointerDown={(event) => event.preventDefault()}
    >
      {keys.map(({ label, name, input }) => (
        <Button key={label} size="small" className="min-w-9 flex-1" aria-label={name} onClick={() => onKey(input)}>
          {label}
        </Button>
      ))}
      <Button size="small" className="flex-1" onClick={onPaste}>
        Paste
      </Button>
    </div>
  )
}
