import { useEffect, useState, type ReactNode } from 'react'
import { shownName } from './shown-name.ts'

/** An image, at its own size or as large as there is room. */
export function ImageView({ blob, name }: { blob: Blob; name: string }): ReactNode {
  const [url, setUrl] = useState<string>()
  const [size, setSize] = useState('')
  const [isBroken, setBroken] = useState(false)
  useEffect(() => {
    const made = URL.createObjectURL(blob)
    setUrl(made)
    return () => URL.revokeObjectURL(made)
  }, [blob])
  return (
    <div className="flex min-h-0 flex-1 flex-col items-center justify-center gap-2 overflow-auto p-4">
      {isBroken ? (
        <p className="text-soft">The browser cannot draw this image.</p>
      ) : (
        <img
          src={url}
          alt={shownName(name)}
          className="max-h-full min-h-0 max-w-full rounded border bg-panel object-contain"
          onLoad={({ currentTarget: { naturalWidth, naturalHeight } }) => setSize(`${naturalWidth} × ${naturalHeight}`)}
          onError={() => url !== undefined && setBroken(true)}
        />
      )}
      <p className="text-[13px] text-soft">
        {size} {blob.type}
      </p>
    </div>
  )
}
