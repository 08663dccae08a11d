import { CornerLeftUp } from 'lucide-react'
import { useState, type FormEvent, type ReactNode } from 'react'
import { IconButton } from '../../../ui/button.tsx'
import { inputLook } from '../../../ui/field.tsx'
import { cx } from '../../../ui/cx.ts'
import { parentPlace, plainPath, type Place } from './place.ts'
import { shownName } from './shown-name.ts'

/** The folder that is shown, which may be typed. Another folder needs another `key`. */
export function PathBar({ place, onGo }: { place: Place; onGo: (place: Place) => void }): ReactNode {
  const isPlain = place.pathBase64 === undefined && shownName(place.path) === place.path
  const shown = isPlain ? place.path : shownName(place.path)
  const [text, setText] = useState(shown)
  const above = parentPlace(place)
  const path = plainPath(text.trim())
  const go = (event: FormEvent) => {
    event.preventDefault()
    if (text === shown) onGo(place)
    else if (path !== undefined) onGo({ path })
  }
  return (
    <form onSubmit={go} className="flex items-center gap-1">
      <IconButton
        label="Folder above"
        icon={<CornerLeftUp className="size-4" />}
        disabled={above === undefined}
        onClick={() => above !== undefined && onGo(above)}
      />
      <input
        aria-label="Folder"
        aria-invalid={path === undefined || undefined}
        className={cx(inputLook, 'font-mono text-[13px]')}
        autoComplete="off"
        autoCapitalize="off"
        spellCheck={false}
        value={text}
        onChange={({ target }) => setText(target.value)}
        onKeyDown={(event) => event.key === 'Escape' && setText(shown)}
      />
    </form>
  )
}
