import type { ReactNode } from 'react'
import { CodeLine } from './copy.tsx'

/** A secret that was just made. It lives in this element alone and goes with it. */
export function SecretOnce({
  secret,
  label,
  note = 'It is shown this once. Copy it to where it is needed before you close this.',
  children,
}: {
  secret: string
  /** What the secret is, for the button that copies it: `Copy the key`. */
  label: string
  note?: string
  children?: ReactNode
}): ReactNode {
  return (
    <div className="flex flex-col gap-3">
      <p role="status" className="rounded-md bg-warn-faint px-3 py-2 text-warn">
        {note}
      </p>
      <CodeLine text={secret} label={label} />
      {children}
    </div>
  )
}
