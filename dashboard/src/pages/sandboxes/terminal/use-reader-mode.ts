import { useState } from 'react'

const stored = 'atoll.terminal.screen-reader'

/** Whether terminals are made readable for screen readers, which the browser remembers. */
export function useReaderMode(): [isOn: boolean, set: (isOn: boolean) => void] {
  const [isOn, setOn] = useState(() => localStorage.getItem(stored) === 'on')
  const set = (next: boolean) => {
    setOn(next)
    if (next) localStorage.setItem(stored, 'on')
    else localStorage.removeItem(stored)
  }
  return [isOn, set]
}
