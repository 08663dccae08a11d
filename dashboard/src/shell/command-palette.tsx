import { useNavigate } from '@tanstack/react-router'
import { Command } from 'cmdk'
import { Dialog as Radix } from 'radix-ui'
import { type ReactNode, useState } from 'react'
import { useMay } from '../account/account.tsx'
import { setTheme, useTheme } from '../lib/theme.ts'
import { destinations } from './destinations.ts'
import { useFound } from './found.ts'

const itemLook = 'flex min-h-9 cursor-pointer items-center gap-2 rounded px-2 py-1 data-[selected=true]:bg-panel'
const groupLook =
  '[&_[cmdk-group-heading]]:px-2 [&_[cmdk-group-heading]]:pt-2 [&_[cmdk-group-heading]]:pb-1 [&_[cmdk-group-heading]]:text-xs [&_[cmdk-group-heading]]:text-soft'

/** Pages, sandboxes and sessions by name or id, and acts, from the keyboard. */
export function CommandPalette({
  isOpen,
  onOpenChange,
}: {
  isOpen: boolean
  onOpenChange: (isOpen: boolean) => void
}): ReactNode {
  const [text, setText] = useState('')
  const navigate = useNavigate()
  const may = useMay()
  const { isDark } = useTheme()
  const found = useFound(text, isOpen)
  const go = (to: string, search: Record<string, string> = {}) => {
    onOpenChange(false)
    setText('')
    void navigate({ to, search })
  }
  const pages = destinations.filter(({ needs }) => needs === undefined || may(needs))
  return (
    <Radix.Root open={isOpen} onOpenChange={onOpenChange}>
      <Radix.Portal>
        <Radix.Overlay className="fixed inset-0 z-40 bg-black/40" />
        <Radix.Content
          aria-describedby={undefined}
          className="fixed top-[12dvh] left-1/2 z-50 w-[min(36rem,calc(100vw-2rem))] -translate-x-1/2 overflow-hidden rounded-lg border bg-raised shadow-xl"
        >
          <Radix.Title className="sr-only">Search and commands</Radix.Title>
          <Command label="Search and commands">
            <Command.Input
              value={text}
              onValueChange={setText}
              placeholder="Go to a page, a sandbox, a session …"
              className="h-11 w-full border-b bg-transparent px-4 outline-none"
            />
            <Command.List className="max-h-[60dvh] overflow-y-auto p-2">
              <Command.Empty className="p-4 text-center text-soft">Nothing has that name.</Command.Empty>
              {found.length > 0 && (
                <Command.Group heading="Found" className={groupLook}>
                  {found.map(({ id, name, kind, state }) => (
                    <Command.Item
                      key={id}
                      value={`${kind} ${name} ${id}`}
                      className={itemLook}
                      onSelect={() => go(`/${kind}/${id}`)}
                    >
                      <span className="min-w-0 truncate">{name === '' ? id : name}</span>
                      <span className="ml-auto shrink-0 text-xs text-soft">
                        {kind === 'sandboxes' ? 'sandbox' : 'session'}, {state}
                      </span>
                    </Command.Item>
                  ))}
                </Command.Group>
              )}
              <Command.Group heading="Pages" className={groupLook}>
                {pages.map(({ path, label, icon: Icon }) => (
                  <Command.Item key={path} value={label} className={itemLook} onSelect={() => go(path)}>
                    <Icon aria-hidden="true" className="size-4 text-soft" />
                    {label}
                  </Command.Item>
                ))}
              </Command.Group>
              <Command.Group heading="Acts" className={groupLook}>
                {may('sandbox:write') && (
                  <Command.Item
                    value="New sandbox"
                    className={itemLook}
                    onSelect={() => go('/sandboxes', { new: 'sandbox' })}
                  >
                    New sandbox
                  </Command.Item>
                )}
                {may('session:write') && (
                  <Command.Item
                    value="New session"
                    className={itemLook}
                    onSelect={() => go('/sessions', { new: 'session' })}
                  >
                    New session
                  </Command.Item>
                )}
                <Command.Item
                  value="Theme light dark"
                  className={itemLook}
                  onSelect={() => {
                    setTheme(isDark ? 'light' : 'dark')
                    onOpenChange(false)
                  }}
                >
                  {isDark ? 'Light theme' : 'Dark theme'}
                </Command.Item>
              </Command.Group>
            </Command.List>
          </Command>
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  )
}
