import { useEffect, useRef, useState } from 'react'
import type { SessionLog } from '../stream/session-log.ts'

/** So many events behind the wanted one make sure that it does not stand at the end of the list, which follows what comes. */
const behind = 100

/** The event that a link leads to: `isSeeking` until it, and what follows it, is among the rows. An address that changes leads to another one. */
export function useTarget(event: number | undefined, log: SessionLog) {
  const [sought, setSought] = useState(event)
  const shown = useRef(event)
  useEffect(() => {
    if (shown.current === event) return
    shown.current = event
    if (event === undefined) return
    setSought(event)
    const { before, last } = log.transcript
    if (event <= before || event > last) log.restart(event)
  }, [event, log])
  const { last } = log.transcript
  // Not that of the last frame: a new reading may have begun since.
  const isReading = log.view().state === 'reading'
  const isHere = sought !== undefined && (!isReading || last >= sought + behind)
  useEffect(() => {
    if (isHere) setSought(undefined)
  }, [isHere])
  return { target: event, isSeeking: sought !== undefined && !isHere }
}
