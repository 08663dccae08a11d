import { Download } from 'lucide-react'
import type { MouseEvent, ReactNode } from 'react'
import { downloadOf } from './download.ts'
import type { Place } from './place.ts'

interface DownloadLinkProps {
  sandboxId: string
  place: Place
  isAsleep: boolean
  /** Resolves with whether the sandbox is awake. */
  awake: () => Promise<boolean>
  /** Its words are for screen readers alone. */
  isIcon?: boolean
}

/** Saves a file on the reader's machine. */
export function DownloadLink({ sandboxId, place, isAsleep, awake, isIcon = false }: DownloadLinkProps): ReactNode {
  const onClick = async (event: MouseEvent<HTMLAnchorElement>) => {
    if (!isAsleep) return
    const link = event.currentTarget
    event.preventDefault()
    // Awake now, though this component may not know.
    if (await awake()) Object.assign(document.createElement('a'), { href: link.href, download: link.download }).click()
  }
  return (
    <a
      {...downloadOf(sandboxId, place)}
      {...(isIcon ? { 'aria-label': 'Download', title: 'Download' } : {})}
      onClick={(event) => void onClick(event)}
      className="inline-flex h-8 shrink-0 items-center justify-center gap-1.5 rounded-md border bg-raised px-2 font-medium whitespace-nowrap hover:border-accent"
    >
      <Download aria-hidden="true" className="size-4" />
      {!isIcon && 'Download'}
    </a>
  )
}
