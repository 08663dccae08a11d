import { DropdownMenu as Radix } from 'radix-ui'
import type { ReactNode } from 'react'
import { cx } from './cx.ts'

export interface MenuItem {
  label: string
  icon?: ReactNode
  onSelect: () => void
  isDisabled?: boolean
  isDanger?: boolean
}

/** Actions behind a button; `undefined` items are left out, so that what may not be done is not offered. */
export function Menu({
  trigger,
  items,
  label,
}: {
  trigger: ReactNode
  items: readonly (MenuItem | undefined)[]
  label: string
}): ReactNode {
  return (
    <Radix.Root modal={false}>
      <Radix.Trigger asChild>{trigger}</Radix.Trigger>
      <Radix.Portal>
        <Radix.Content
          aria-label={label}
          align="end"
          sideOffset={4}
          className="z-50 min-w-44 rounded-md border bg-raised p-1 shadow-lg"
        >
          {items.map(
            (item) =>
              item !== undefined && (
                <Radix.Item
                  key={item.label}
                  disabled={item.isDisabled === true}
                  onSelect={item.onSelect}
                  className={cx(
                    'flex h-8 items-center gap-2 rounded px-2 outline-none select-none data-[disabled]:opacity-50 data-[highlighted]:bg-panel',
                    item.isDanger === true && 'text-bad',
                  )}
                >
                  {item.icon}
                  {item.label}
                </Radix.Item>
              ),
          )}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  )
}
