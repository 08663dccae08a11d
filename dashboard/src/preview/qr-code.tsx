import type { ReactNode } from 'react'
import { encode } from 'uqr'

/** Modules around the code that readers need. */
const quiet = 4
/** What the largest code holds at this level of correction. */
const charsMax = 2000

/** An address as a QR code, for the camera of a phone. */
export function QrCode({ text }: { text: string }): ReactNode {
  if (text.length > charsMax) return <p className="text-soft">The address is too long for a code.</p>
  const { data, size } = encode(text, { ecc: 'M', border: 0 })
  const path = data.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : []))).join('')
  const box = size + 2 * quiet
  return (
    <svg
      role="img"
      aria-label="QR code of the address"
      viewBox={`${-quiet} ${-quiet} ${box} ${box}`}
      shapeRendering="crispEdges"
      // Readers want dark on light, in the dark theme too.
      className="size-48 rounded bg-white text-black"
    >
      <path d={path} fill="currentColor" />
    </svg>
  )
}
