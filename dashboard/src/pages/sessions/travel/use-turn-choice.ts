import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useRef, useState } from 'react'

/** A browser refuses to change the address hundreds of times within seconds, as dragging would. */
const settledMs = 150

export interface TurnChoice {
  /** The message whose turn is looked at; undefined: the present. */
  messageId: string | undefined
  choose: (messageId: string | undefined) => void
}

/** Which turn is looked at: at once for the page, and a moment later in its address (`?turn=`). */
export function useTurnChoice(): TurnChoice {
  const { turn } = useSearch({ from: '/shell/sessions/$sessionId' })
  const navigate = useNavigate()
  const [early, setEarly] = useState<{ messageId: string | undefined }>()
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  useEffect(() => () => clearTimeout(timer.current), [])
  // The address has caught up, or leads elsewhere.
  useEffect(() => setEarly(undefined), [turn])
  const choose = (messageId: string | undefined) => {
    setEarly({ messageId })
    clearTimeout(timer.current)
    timer.current = setTimeout(() => {
      void navigate({
        to: '.',
        search: ({ turn: _turn, ...rest }) => (messageId === undefined ? rest : { ...rest, turn: messageId }),
        replace: true,
      })
    }, settledMs)
  }
  return { messageId: early === undefined ? turn : early.messageId, choose }
}
