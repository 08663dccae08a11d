import { ExternalLink, QrCode as QrIcon, RotateCw } from 'lucide-react'
import { Popover } from 'radix-ui'
import { useMemo, useState, type ReactNode } from 'react'
import { IconButton } from '../ui/button.tsx'
import { CopyButton } from '../ui/copy.tsx'
import { cx } from '../ui/cx.ts'
import { ErrorNote } from '../ui/states.tsx'
import { FrameStack } from './frame-stack.tsx'
import { QrCode } from './qr-code.tsx'
import { useFrameSource, type GuardedPreview } from './use-frame-source.ts'

interface PreviewFrameProps {
  /** Where the port answers. */
  url: string
  /** What is framed, for screen readers. */
  title: string
  /** Of a preview that may demand a token: the page asks the server for a visit, which needs the scope `preview`. */
  guarded?: GuardedPreview
  /** A change loads the page anew. */
  version?: string | number
  className?: string
}

/** The page of a port, in a frame of its own origin, with what opens it elsewhere. When nothing listens, the preview itself says so. */
export function PreviewFrame({ url, title, guarded, version = 0, className }: PreviewFrameProps): ReactNode {
  const [reloads, setReloads] = useState(0)
  const source = useFrameSource(url, guarded, version)
  const [isSettled, setSettled] = useState(false)
  const { url: address } = source
  const frame = useMemo(
    () => (address === undefined ? undefined : { key: `${version} ${reloads} ${address}`, url: address }),
    [version, reloads, address],
  )
  const reload = () => {
    source.renew()
    setReloads(reloads + 1)
  }
  return (
    <section
      aria-label={title}
      className={cx('flex min-h-0 flex-1 flex-col overflow-hidden rounded-lg border bg-raised', className)}
    >
      <div className="flex items-center gap-1 border-b bg-panel py-1 pr-1 pl-3">
        <span className="min-w-0 flex-1 truncate font-mono text-[13px] text-soft" title={url}>
          {url}
        </span>
        <IconButton
          label="Load the page anew"
          icon={<RotateCw aria-hidden="true" className={cx('size-4', !isSettled && 'animate-spin')} />}
          onClick={reload}
        />
        <CopyButton text={url} label="Copy the address" />
        <Popover.Root>
          <Popover.Trigger asChild>
            <IconButton label="Open on a phone" icon={<QrIcon aria-hidden="true" className="size-4" />} />
          </Popover.Trigger>
          <Popover.Portal>
            <Popover.Content
              aria-label="QR code of the address"
              align="end"
              sideOffset={4}
              className="z-50 flex max-w-[calc(100vw-2rem)] flex-col items-center gap-2 rounded-md border bg-raised p-3 shadow-lg"
            >
              <QrCode text={url} />
              <p className="max-w-48 text-center text-[13px] text-soft">For a device that reaches this address.</p>
            </Popover.Content>
          </Popover.Portal>
        </Popover.Root>
        {/* A guarded preview knows this browser by the cookie that the visit of the frame has left. */}
        <a
          href={url}
          target="_blank"
          rel="noopener noreferrer"
          title="Open in a tab"
          aria-label="Open in a tab"
          className="inline-flex size-8 shrink-0 items-center justify-center rounded-md text-soft hover:bg-raised hover:text-ink"
        >
          <ExternalLink aria-hidden="true" className="size-4" />
        </a>
      </div>
      {source.error !== undefined ? (
        <div className="p-3">
          <ErrorNote error={source.error} onRetry={source.renew} />
        </div>
      ) : (
        <FrameStack source={frame} title={title} onSettle={setSettled} />
      )}
    </section>
  )
}
