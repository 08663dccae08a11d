import { useEffect, useEffectEvent, useLayoutEffect, useRef, useState, type RefObject } from 'react'

/** So near to its end a list counts as being there. */
const endPx = 32
const upKeys: ReadonlySet<string> = new Set(['ArrowUp', 'PageUp', 'Home'])

interface FollowingOptions {
  scroll: RefObject<HTMLElement | null>
  /** What the list shows: another value means that more has come. */
  items: unknown
  isWanted: boolean
  /** Called when the reader wants to see earlier rows, also where the list cannot move further. */
  onUp: () => void
  scrollToEnd: () => void
}

/**
 * Whether a list follows its end. Only what a reader does ends that, since the list itself moves too while rows are measured; it begins again when they
 * come to the end. `gestures` counts what they did to see earlier rows. A list that follows stays at its end when rows come or grow, and when its room becomes smaller.
 */
export function useFollowing({ scroll, items, isWanted, onUp, scrollToEnd }: FollowingOptions) {
  const [isFollowing, setFollowing] = useState(isWanted)
  const gestures = useRef(0)
  const goToEnd = useEffectEvent(() => {
    if (isFollowing) scrollToEnd()
  })
  const goUp = useEffectEvent(onUp)
  useLayoutEffect(() => goToEnd(), [items, isFollowing])
  useEffect(() => {
    const element = scroll.current
    if (element === null) return undefined
    const leave = () => {
      gestures.current += 1
      if (element.scrollHeight > element.clientHeight) setFollowing(false)
      goUp()
    }
    const isAtEnd = () => element.scrollHeight - element.scrollTop - element.clientHeight <= endPx
    const onWheel = ({ deltaY }: WheelEvent) => {
      if (deltaY < 0) leave()
    }
    const onKey = ({ key }: KeyboardEvent) => {
      if (upKeys.has(key)) leave()
    }
    // Of the bar beside the rows.
    const onPointer = ({ target }: PointerEvent) => {
      if (target === element) leave()
    }
    const onScroll = () => {
      if (isAtEnd()) setFollowing(true)
    }
    const observer = new ResizeObserver(() => goToEnd())
    const passive = { passive: true }
    element.addEventListener('wheel', onWheel, passive)
    element.addEventListener('touchmove', leave, passive)
    element.addEventListener('keydown', onKey)
    element.addEventListener('pointerdown', onPointer)
    element.addEventListener('scroll', onScroll, passive)
    observer.observe(element)
    if (element.firstElementChild !== null) observer.observe(element.firstElementChild)
    return () => {
      element.removeEventListener('wheel', onWheel)
      element.removeEventListener('touchmove', leave)
      element.removeEventListener('keydown', onKey)
      element.removeEventListener('pointerdown', onPointer)
      element.removeEventListener('scroll', onScroll)
      observer.disconnect()
    }
  }, [scroll])
  return { isFollowing, gestures, follow: () => setFollowing(true), leave: () => setFollowing(false) }
}
