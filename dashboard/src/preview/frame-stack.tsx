import { useEffect, useState, type ReactNode } from 'react'
import { cx } from '../ui/cx.ts'
import { Loading } from '../ui/states.tsx'

/** A page that is not loaded by then is seen as far as it is. */
const loadMs = 8000

interface FrameSource {
  /** Another key loads the address anew. */
  key: string
  url: string
}

interface FrameStackProps {
  /** Undefined while it is not known yet. */
  source: FrameSource | undefined
  title: string
  /** Whether what is seen is what was asked for. */
  onSettle: (isSettled: boolean) => void
}

/** A framed page. While it is loaded anew the one of before is seen, so that nothing flashes. */
export function FrameStack({ source, title, onSettle }: FrameStackProps): ReactNode {
  const [shown, setShown] = useState<FrameSource>()
  const frames = [shown, source].filter(
    (frame, index, all) => frame !== undefined && all.findIndex((one) => one?.key === frame.key) === index,
  )
  useEffect(() => {
    if (source === undefined) return
    const timer = setTimeout(() => setShown(source), loadMs)
    return () => clearTimeout(timer)
  }, [source])
  useEffect(() => onSettle(source !== undefined && shown?.key === source.key), [source, shown, onSettle])
  if (frames.length === 0) {
    return (
      <div className="p-3">
        <Loading label="Opening the preview" />
      </div>
    )
  }
  return (
    <div className="relative min-h-48 flex-1">
      {frames.map(
        (frame) =>
          frame !== undefined && (
            <iframe
              key={frame.key}
              src={frame.url}
              title={title}
              sandbox="allow-scripts allow-forms allow-same-origin allow-popups allow-modals allow-downloads"
              referrerPolicy="no-referrer"
              onLoad={() => frame.key === source?.key && setShown(frame)}
              className={cx(
                // Pages are made for a light canvas unless they say otherwise.
                'absolute inset-0 size-full bg-white',
                shown !== undefined && frame.key !== shown.key && 'invisible',
              )}
            />
          ),
      )}
    </div>
  )
}
