import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useRef, type ReactNode } from 'react'

interface VirtualListProps<Item> {
  label: string
  items: readonly Item[]
  keyOf: (item: Item) => string
  render: (item: Item) => ReactNode
  estimatePx: number
  /** Begins at the last item, and goes there when another one is the last. */
  isAtEnd?: boolean
  /** Called when its end is near. */
  onNearEnd?: (() => void) | undefined
  /** Stands below the last item. */
  footer?: ReactNode
}

/** So many items before the end count as near. */
const nearItems = 5

/** Items of any number and height: only those in view are in the page. It scrolls within the room that its parent has. */
export function VirtualList<Item>(props: VirtualListProps<Item>): ReactNode {
  const { label, items, keyOf, render, estimatePx, isAtEnd = false, onNearEnd, footer } = props
  const scroll = useRef<HTMLDivElement>(null)
  const virtualizer = useVirtualizer({
    count: items.length + (footer === undefined ? 0 : 1),
    getScrollElement: () => scroll.current,
    estimateSize: () => estimatePx,
    getItemKey: (index) => {
      const item = items[index]
      return item === undefined ? 'footer' : keyOf(item)
    },
    overscan: 4,
  })
  const last = items.at(-1)
  const lastKey = last && keyOf(last)
  useEffect(() => {
    if (isAtEnd && lastKey !== undefined) virtualizer.scrollToIndex(items.length - 1, { align: 'end' })
    // A reader who scrolls stays where they are, so nothing else counts.
  }, [isAtEnd, lastKey])
  const shown = virtualizer.getVirtualItems()
  const lastShown = shown.at(-1)?.index ?? 0
  useEffect(() => {
    if (lastShown >= items.length - nearItems) onNearEnd?.()
  }, [lastShown, items.length, onNearEnd])
  return (
    <div
      ref={scroll}
      role="group"
      aria-label={label}
      tabIndex={0}
      className="min-h-0 flex-auto overflow-y-auto -outline-offset-2"
    >
      <div className="relative" style={{ height: virtualizer.getTotalSize() }}>
        {shown.map(({ index, key, start }) => {
          const item = items[index]
          return (
            <div
              key={key}
              ref={virtualizer.measureElement}
              data-index={index}
              className="absolute inset-x-0 top-0"
              style={{ transform: `translateY(${start}px)` }}
            >
              {item === undefined ? footer : render(item)}
            </div>
          )
        })}
      </div>
    </div>
  )
}
