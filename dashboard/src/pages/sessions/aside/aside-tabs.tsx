import { useNavigate } from '@tanstack/react-router'
import type { SessionInfo, TurnInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { Tabs, type Tab } from '../../../ui/tabs.tsx'
import type { SessionTab } from '../search.ts'
import type { LogView } from '../stream/session-log.ts'
import { Artifacts } from './artifacts.tsx'
import { Changes } from './changes.tsx'
import { SessionFacts } from './session-facts.tsx'
import { SessionPreview } from './session-preview.tsx'
import { SessionUsage } from './session-usage.tsx'

interface AsideTabsProps {
  session: SessionInfo
  turns: readonly TurnInfo[]
  view: LogView
  tab: SessionTab | undefined
  /** The conversation, where there is no room beside it. */
  talk: ReactNode | undefined
}

/** What the agent makes and takes, a part at a time. */
export function AsideTabs({ session, turns, view, tab, talk }: AsideTabsProps): ReactNode {
  const navigate = useNavigate()
  const { artifacts } = session.project
  const { turnsDone } = view
  const scrolled = (content: ReactNode) => <div className="min-h-0 flex-1 overflow-y-auto">{content}</div>
  const beside: Tab[] = [
    { value: 'preview', label: 'Preview', content: <SessionPreview session={session} version={turnsDone} /> },
    { value: 'changes', label: 'Changes', content: <Changes session={session} turns={turns} /> },
    {
      value: 'artifacts',
      label: artifacts.length === 0 ? 'Artifacts' : `Artifacts (${artifacts.length})`,
      content: scrolled(<Artifacts session={session} />),
    },
    { value: 'usage', label: 'Usage', content: scrolled(<SessionUsage session={session} />) },
    { value: 'facts', label: 'Facts', content: scrolled(<SessionFacts session={session} />) },
  ]
  const tabs: Tab[] = talk === undefined ? beside : [{ value: 'chat', label: 'Conversation', content: talk }, ...beside]
  const first: SessionTab = talk === undefined ? 'preview' : 'chat'
  const shown = tabs.some(({ value }) => value === tab) ? (tab ?? first) : first
  return (
    <Tabs
      label="Parts of the session"
      tabs={tabs}
      value={shown}
      onChange={(value) => {
        void navigate({
          to: '.',
          search: ({ tab: _tab, ...rest }) => (value === first ? rest : { ...rest, tab: value as SessionTab }),
          replace: true,
        })
      }}
    />
  )
}
