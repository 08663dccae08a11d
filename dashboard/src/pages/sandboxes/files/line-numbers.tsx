import { useEffect, useState, type ReactNode, type RefObject } from 'react'

export const lineHeightPx = 20
const overscan = 10

/** The numbers of the lines in view of a text field that does not wrap. */
export function LineNumbers({
  field,
  count,
}: {
  field: RefObject<HTMLTextAreaElement | null>
  count: number
}): ReactNode {
  const [view, setView] = useState({ top: 0, height: 600 })
  useEffect(() => {
    const element = field.current
    if (element === null) return undefined
    const look = () => setView({ top: element.scrollTop, height: element.clientHeight })
    const observer = new ResizeObserver(look)
    observer.observe(element)
    element.addEventListener('scroll', look, { passive: true })
    return () => {
      observer.disconnect()
      element.removeEventListener('scroll', look)
    }
  }, [field])
  const first = Math.max(0, Math.floor(view.top / lineHeightPx) - overscan)
  const last = Math.min(count, Math.ceil((view.top + view.height) / lineHeightPx) + overscan)
  const digits = Math.max(3, String(count).length)
  return (
    <div
      aria-hidden="true"
      className="relative shrink-0 overflow-hidden border-r bg-panel text-right text-soft select-none"
      style={{ width: `calc(${digits}ch + 1.25rem)` }}
    >
      <div
        className="absolute inset-x-0 pr-2 pt-2"
        style={{ transform: `translateY(${first * lineHeightPx - view.top}px)` }}
      >
        {Array.from({ length: Math.max(0, last - first) }, (_, index) => (
          <div key={first + index} style={{ height: lineHeightPx }}>
            {first + index + 1}
          </div>
        ))}
      </div>
    </div>
  )
}
