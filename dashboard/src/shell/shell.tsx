import { Link, Outlet, useLocation } from '@tanstack/react-router'
import { BookOpen, LogOut, Menu as MenuIcon, Moon, Search, Sun, SunMoon, X } from 'lucide-react'
import mark from '../atoll.svg'
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { useAccount, useMay, useSignOut } from '../account/account.tsx'
import { Needs } from '../account/needs.tsx'
import { setTheme, useTheme, type Theme } from '../lib/theme.ts'
import { LiveProvider } from '../live/live.tsx'
import { Button, IconButton } from '../ui/button.tsx'
import { cx } from '../ui/cx.ts'
import { Menu } from '../ui/menu.tsx'
import { CommandPalette } from './command-palette.tsx'
import { destinations } from './destinations.ts'
import { LiveIndicator } from './live-indicator.tsx'

/** What surrounds each page: navigation, search, the state of the live connection, the account. */
export function Shell(): ReactNode {
  const [isNavOpen, setNavOpen] = useState(false)
  const [isPaletteOpen, setPaletteOpen] = useState(false)
  const { pathname } = useLocation()
  const main = useRef<HTMLElement>(null)
  useEffect(() => {
    setNavOpen(false)
    main.current?.scrollTo(0, 0)
  }, [pathname])
  useEffect(() => {
    const open = (event: KeyboardEvent) => {
      if (event.key !== 'k' || !(event.ctrlKey || event.metaKey)) return
      event.preventDefault()
      setPaletteOpen((isOpen) => !isOpen)
    }
    addEventListener('keydown', open)
    return () => removeEventListener('keydown', open)
  }, [])
  return (
    <LiveProvider>
      <a
        href="#main"
        className="sr-only z-50 bg-accent p-2 text-accent-ink focus:not-sr-only focus:fixed focus:top-2 focus:left-2"
      >
        Skip to the page
      </a>
      <div className="flex h-full flex-col md:flex-row">
        <header className="flex items-center gap-2 border-b bg-panel px-3 py-2 md:hidden">
          <IconButton
            label={isNavOpen ? 'Close the navigation' : 'Open the navigation'}
            aria-expanded={isNavOpen}
            icon={isNavOpen ? <X className="size-5" /> : <MenuIcon className="size-5" />}
            onClick={() => setNavOpen(!isNavOpen)}
          />
          <Mark />
          <div className="ml-auto flex items-center gap-1">
            <LiveIndicator />
            <IconButton
              label="Search and commands"
              icon={<Search className="size-4" />}
              onClick={() => setPaletteOpen(true)}
            />
          </div>
        </header>
        <nav
          aria-label="Pages"
          className={cx(
            'flex w-full shrink-0 flex-col gap-0.5 overflow-y-auto border-r bg-panel p-3 md:flex md:w-52',
            !isNavOpen && 'max-md:hidden',
          )}
        >
          <div className="mb-3 flex items-center px-2 max-md:hidden">
            <Mark />
            <div className="ml-auto">
              <LiveIndicator />
            </div>
          </div>
          <Button className="mb-2 justify-start max-md:hidden" onClick={() => setPaletteOpen(true)}>
            <Search aria-hidden="true" className="size-4" /> Search
            <kbd className="ml-auto text-xs text-soft">Ctrl K</kbd>
          </Button>
          <Destinations />
          <div className="mt-auto flex flex-col gap-0.5 pt-3">
            <a
              href="/docs"
              className="flex h-8 items-center gap-2 rounded-md px-2 text-soft hover:bg-raised hover:text-ink"
            >
              <BookOpen aria-hidden="true" className="size-4" /> Docs
            </a>
            <AccountMenu />
          </div>
        </nav>
        <main
          ref={main}
          id="main"
          tabIndex={-1}
          className={cx('min-h-0 min-w-0 flex-1 overflow-y-auto outline-none', isNavOpen && 'max-md:hidden')}
        >
          <AllowedPage />
        </main>
      </div>
      <CommandPalette isOpen={isPaletteOpen} onOpenChange={setPaletteOpen} />
    </LiveProvider>
  )
}

/** The page of the address, where the key may use it. */
function AllowedPage(): ReactNode {
  const { pathname } = useLocation()
  const of = destinations.find(({ path }) => path !== '/' && (pathname === path || pathname.startsWith(`${path}/`)))
  if (of?.needs === undefined) return <Outlet />
  return (
    <Needs scope={of.needs} title={of.label}>
      <Outlet />
    </Needs>
  )
}

function Mark(): ReactNode {
  return (
    <Link to="/" className="flex items-center gap-2 text-base font-semibold">
      <img src={mark} alt="" className="size-5" />
      Atoll
    </Link>
  )
}

function Destinations(): ReactNode {
  const may = useMay()
  return destinations
    .filter(({ needs }) => needs === undefined || may(needs))
    .map(({ path, label, icon: Icon }) => (
      <Link
        key={path}
        to={path}
        activeOptions={{ exact: path === '/', includeSearch: false }}
        className="flex h-8 items-center gap-2 rounded-md px-2 text-soft hover:bg-raised hover:text-ink aria-[current=page]:bg-accent-faint aria-[current=page]:font-medium aria-[current=page]:text-ink"
      >
        <Icon aria-hidden="true" className="size-4" />
        {label}
      </Link>
    ))
}

const themes: readonly { theme: Theme; label: string; icon: ReactNode }[] = [
  { theme: 'system', label: 'Light or dark as the system', icon: <SunMoon className="size-4" /> },
  { theme: 'light', label: 'Light', icon: <Sun className="size-4" /> },
  { theme: 'dark', label: 'Dark', icon: <Moon className="size-4" /> },
]

function AccountMenu(): ReactNode {
  const account = useAccount()
  const signOut = useSignOut()
  const { theme } = useTheme()
  const name = account?.isOperator === true ? 'Operator' : (account?.org_name ?? account?.org_id ?? '')
  const keyName = account?.key.name
  return (
    <Menu
      label="Account"
      trigger={
        <button
          type="button"
          className="flex min-h-8 w-full items-center gap-2 rounded-md px-2 py-1 text-left hover:bg-raised"
        >
          <span
            aria-hidden="true"
            className="flex size-6 shrink-0 items-center justify-center rounded-full bg-accent text-xs font-semibold text-accent-ink"
          >
            {name.slice(0, 1).toUpperCase()}
          </span>
          <span className="min-w-0">
            <span className="block truncate font-medium">{name}</span>
            {keyName !== undefined && keyName !== '' && (
              <span className="block truncate text-xs text-soft">key {keyName}</span>
            )}
          </span>
        </button>
      }
      items={[
        ...themes
          .filter((choice) => choice.theme !== theme)
          .map((choice) => ({ label: choice.label, icon: choice.icon, onSelect: () => setTheme(choice.theme) })),
        { label: 'Sign out', icon: <LogOut className="size-4" />, onSelect: () => void signOut() },
      ]}
    />
  )
}
