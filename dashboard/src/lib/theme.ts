import { useSyncExternalStore } from 'react'

export type Theme = 'system' | 'light' | 'dark'

const stored = 'atoll.theme'
const prefersDark = matchMedia('(prefers-color-scheme: dark)')
const listeners = new Set<() => void>()
let theme: Theme = read()

function read(): Theme {
  const value = localStorage.getItem(stored)
  return value === 'light' || value === 'dark' ? value : 'system'
}

function isDark(): boolean {
  return theme === 'dark' || (theme === 'system' && prefersDark.matches)
}

function apply(): void {
  document.documentElement.dataset['theme'] = isDark() ? 'dark' : 'light'
  for (const listener of listeners) listener()
}

/** Follows the choice of the reader in this and other tabs, and the preference of the system. */
export function installTheme(): void {
  prefersDark.addEventListener('change', apply)
  addEventListener('storage', ({ key }) => {
    if (key !== stored) return
    theme = read()
    apply()
  })
  apply()
}

export function setTheme(next: Theme): void {
  theme = next
  if (next === 'system') localStorage.removeItem(stored)
  else localStorage.setItem(stored, next)
  apply()
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

/** The choice of the reader, and whether the page is dark now. */
export function useTheme(): { theme: Theme; isDark: boolean } {
  const dark = useSyncExternalStore(subscribe, isDark)
  return { theme: useSyncExternalStore(subscribe, () => theme), isDark: dark }
}
