import type { SessionInfo, TurnInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { useMedia } from '../../../lib/media.ts'
import { Tabs } from '../../../ui/tabs.tsx'
import { VariantCard } from './variant-card.tsx'

/** A fork, and what it is called. */
export interface Variant {
  fork: TurnInfo['forks'][number]
  label: string
}

interface VariantsProps {
  session: SessionInfo
  /** At whose end they begin. */
  turn: TurnInfo
  forks: readonly Variant[]
  /** The one that is seen on a narrow window. */
  shown: string | undefined
  onShow: (id: string) => void
  /** Called with what the fork that was kept is called. */
  onAdopted: (name: string) => void
  onChanged: () => void
}

/** Forks of one point: side by side where there is room, else one at a time. */
export function Variants({ session, turn, forks, shown, onShow, onAdopted, onChanged }: VariantsProps): ReactNode {
  const isWide = useMedia('(min-width: 48rem)')
  const cards = forks.map(({ fork, label }) => ({
    id: fork.id,
    label,
    card: (
      <VariantCard
        key={fork.id}
        {...{ session, turn, fork, label, onAdopted, onChanged }}
        othersCount={forks.length - 1}
      />
    ),
  }))
  if (!isWide) {
    const [first] = cards
    const value = cards.some(({ id }) => id === shown) ? (shown ?? '') : (first?.id ?? '')
    const tabs = cards.map(({ id, label, card }) => ({ value: id, label, content: card }))
    return <Tabs label="Variants" tabs={tabs} value={value} onChange={onShow} />
  }
  return (
    <section aria-label="Variants" className="grid grid-cols-[repeat(auto-fit,minmax(min(19rem,100%),1fr))] gap-4">
      {cards.map(({ card }) => card)}
    </section>
  )
}
