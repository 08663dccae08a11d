import { useMutation } from '@tanstack/react-query'
import type { RewoundInfo, SessionInfo } from 'atoll-sdk'
import { Undo2 } from 'lucide-react'
import type { ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { useToast } from '../../../ui/toasts.tsx'
import { reasonOf } from '../../../ui/states.tsx'
import { sessionOf } from '../use-session.ts'

/** Undoes the newest rewind or adoption of a session, and that undo too. */
export function UndoButton({
  session,
  onDone,
  label = 'Undo rewind',
}: {
  session: SessionInfo
  onDone: (rewound: RewoundInfo) => void
  label?: string
}): ReactNode {
  const toast = useToast()
  const undo = useMutation({
    mutationFn: () => sessionOf(session).undo(),
    onSuccess: onDone,
    onError: (error) => toast({ tone: 'bad', text: `Nothing was undone: ${reasonOf(error)}` }),
  })
  return (
    <Button
      size="small"
      isBusy={undo.isPending}
      title="Takes the session back to where it was before the newest rewind. It can be undone too."
      onClick={() => undo.mutate()}
    >
      <Undo2 aria-hidden="true" className="size-4" /> {label}
    </Button>
  )
}
