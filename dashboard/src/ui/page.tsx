import { useEffect, type ReactNode } from 'react'
import { cx } from './cx.ts'

interface PageProps {
  title: string
  /** Stands beside the title: a state, a count. */
  aside?: ReactNode
  actions?: ReactNode
  /** Says in one sentence what the page is about. */
  lead?: ReactNode
  children: ReactNode
  /** The page fills the window and its parts scroll by themselves. */
  isFilling?: boolean
}

/** The frame of a page: one heading, which is the title of the document too, and its actions. */
export function Page({ title, aside, actions, lead, children, isFilling = false }: PageProps): ReactNode {
  useEffect(() => {
    document.title = `${title} · Atoll`
  }, [title])
  return (
    <div className={cx('mx-auto flex w-full max-w-[110rem] flex-col gap-4 p-4 sm:p-6', isFilling && 'h-full min-h-0')}>
      <header className="flex flex-wrap items-center gap-x-3 gap-y-2">
        <h1 className="min-w-0 text-xl font-semibold break-words" tabIndex={-1}>
          {title}
        </h1>
        {aside}
        <div className="ml-auto flex flex-wrap items-center gap-2">{actions}</div>
        {lead !== undefined && <p className="w-full text-soft">{lead}</p>}
      </header>
      {children}
    </div>
  )
}

/** A bordered part of a page, with a heading of its own. */
export function Panel({
  title,
  actions,
  children,
  className,
}: {
  title?: ReactNode
  actions?: ReactNode
  children: ReactNode
  className?: string
}): ReactNode {
  return (
    <section className={cx('rounded-lg border bg-raised', className)}>
      {title !== undefined && (
        <header className="flex flex-wrap items-center gap-2 border-b px-4 py-2.5">
          <h2 className="font-semibold">{title}</h2>
          <div className="ml-auto flex items-center gap-2">{actions}</div>
        </header>
      )}
      <div className="p-4">{children}</div>
    </section>
  )
}

/** Names and values, side by side. */
export function Facts({ items }: { items: readonly (readonly [name: string, value: ReactNode])[] }): ReactNode {
  return (
    <dl className="grid grid-cols-[max-content_minmax(0,1fr)] gap-x-4 gap-y-1.5">
      {items.map(([name, value]) => (
        <div key={name} className="contents">
          <dt className="text-soft">{name}</dt>
          <dd className="min-w-0 break-words">{value}</dd>
        </div>
      ))}
    </dl>
  )
}
