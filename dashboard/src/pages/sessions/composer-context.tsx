import { createContext, use, useMemo, useSyncExternalStore, type ReactNode } from 'react'
import { DraftStore } from './composer/draft-store.ts'

export interface Composer {
  /** Puts a prompt into the message field, to be edited and sent again. What was there is kept below it. */
  restore: (prompt: string) => void
}

interface ComposerState {
  sessionId: string
  drafts: DraftStore
}

const drafts = new DraftStore()
const ComposerContext = createContext<ComposerState | undefined>(undefined)

/** Gives the parts of a session's page the field in which its next message is written. */
export function ComposerProvider({ sessionId, children }: { sessionId: string; children: ReactNode }): ReactNode {
  const state = useMemo(() => ({ sessionId, drafts }), [sessionId])
  return <ComposerContext value={state}>{children}</ComposerContext>
}

/** Undefined outside of a session's page. */
export function useComposer(): Composer | undefined {
  const state = use(ComposerContext)
  return useMemo(() => state && { restore: (prompt) => state.drafts.restore(state.sessionId, prompt) }, [state])
}

/** The message that is being written, which outlives a change of tabs and pages. */
export function useDraft(sessionId: string): {
  text: string
  /** Raised when another part of the page has put a text there. */
  restored: number
  setText: (text: string) => void
} {
  const draft = useSyncExternalStore(drafts.subscribe, () => drafts.of(sessionId))
  return { ...draft, setText: (text) => drafts.set(sessionId, text) }
}
