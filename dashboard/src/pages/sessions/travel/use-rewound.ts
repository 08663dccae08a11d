import { useQueryClient } from '@tanstack/react-query'
import type { RewoundInfo, SessionInfo } from 'atoll-sdk'
import { useToast } from '../../../ui/toasts.tsx'
import { useComposer } from '../composer-context.tsx'

const processesWords = {
  restored: 'Processes of that time run again.',
  ended: 'All its processes have ended.',
  kept: 'Its processes run on.',
} as const

/** What the page does after a rewind, an undo or an adoption: all that it knows of the session is stale, and the prompt that was left can be sent again. */
export function useRewound({ id }: SessionInfo): (rewound: RewoundInfo) => void {
  const queries = useQueryClient()
  const toast = useToast()
  const composer = useComposer()
  return ({ restoredPrompt, processes }) => {
    void queries.invalidateQueries({ queryKey: ['session', id] })
    if (restoredPrompt !== null) composer?.restore(restoredPrompt)
    toast({
      tone: 'good',
      text: `The session was taken to the other point. ${processesWords[processes]}${restoredPrompt === null ? '' : ' The first message that was left is in the message field.'}`,
    })
  }
}
