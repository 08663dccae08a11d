import { Tabs as Radix } from 'radix-ui'
import type { ReactNode } from 'react'

export interface Tab {
  value: string
  label: ReactNode
  content: ReactNode
}

/** Parts of a page of which one is seen. The choice belongs into the URL: give `value` and `onChange` from the search of the route. */
export function Tabs({
  tabs,
  value,
  onChange,
  label,
}: {
  tabs: readonly Tab[]
  value: string
  onChange: (value: string) => void
  label: string
}): ReactNode {
  return (
    <Radix.Root value={value} onValueChange={onChange} className="flex min-h-0 flex-1 flex-col gap-4">
      <Radix.List aria-label={label} className="flex overflow-x-auto border-b">
        {tabs.map((tab) => (
          <Radix.Trigger
            key={tab.value}
            value={tab.value}
            className="-mb-px shrink-0 border-b-2 border-transparent px-3 py-2 font-medium text-soft hover:text-ink data-[state=active]:border-accent data-[state=active]:text-ink"
          >
            {tab.label}
          </Radix.Trigger>
        ))}
      </Radix.List>
      {tabs.map((tab) => (
        <Radix.Content key={tab.value} value={tab.value} className="flex min-h-0 flex-1 flex-col outline-none">
          {tab.content}
        </Radix.Content>
      ))}
    </Radix.Root>
  )
}
