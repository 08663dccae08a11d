import { Plus } from 'lucide-react'
import { type ReactNode, useState } from 'react'
import { Button } from '../../../ui/button.tsx'
import { KeyDialog } from './key-dialog.tsx'
import type { KeyPlace } from './place.ts'

/** The button that makes a key, and its dialog. */
export function useNewKey(place: KeyPlace): { button: ReactNode; dialog: ReactNode; open: () => void } {
  const [isOpen, setOpen] = useState(false)
  const open = () => setOpen(true)
  return {
    open,
    button: (
      <Button look="primary" onClick={open}>
        <Plus aria-hidden="true" className="size-4" /> New key
      </Button>
    ),
    dialog: isOpen && <KeyDialog place={place} onClose={() => setOpen(false)} />,
  }
}
