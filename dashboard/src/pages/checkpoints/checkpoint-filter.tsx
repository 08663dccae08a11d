import { getRouteApi } from '@tanstack/react-router'
import { useState, type FormEvent, type ReactNode } from 'react'
import { defined, oneOf, textOf } from '../../lib/search.ts'
import { inputLook } from '../../ui/field.tsx'
import { origins, originWords, owners, ownerWords } from './words.ts'

const route = getRouteApi('/shell/checkpoints')

/** Whose checkpoints are shown: by the address of the page. */
export function CheckpointFilter(): ReactNode {
  const { sandbox, owner, origin } = route.useSearch()
  const navigate = route.useNavigate()
  const set = (change: object) =>
    void navigate({ replace: true, search: (search) => defined({ ...search, ...change, checkpoint: undefined }) })
  return (
    <>
      <SandboxFilter key={sandbox} sandbox={sandbox} onChange={(text) => set({ sandbox: text })} />
      <select
        aria-label="Owner"
        className={`${inputLook} flex-1 sm:max-w-52`}
        value={owner ?? ''}
        onChange={({ target }) => set({ owner: oneOf(owners, target.value) })}
      >
        <option value="">Any owner</option>
        {owners.map((one) => (
          <option key={one} value={one}>
            Needed by {ownerWords[one]}
          </option>
        ))}
      </select>
      <select
        aria-label="Origin"
        className={`${inputLook} flex-1 sm:max-w-52`}
        value={origin ?? ''}
        onChange={({ target }) => set({ origin: oneOf(origins, target.value) })}
      >
        <option value="">Any origin but turns</option>
        {origins.map((one) => (
          <option key={one} value={one}>
            {originWords[one].replace(/^./, (first) => first.toUpperCase())}
          </option>
        ))}
      </select>
    </>
  )
}

/** The server finds it, so it is asked once the text stands. */
function SandboxFilter({
  sandbox = '',
  onChange,
}: {
  sandbox: string | undefined
  onChange: (sandbox: string | undefined) => void
}): ReactNode {
  const [text, setText] = useState(sandbox)
  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (text.trim() !== sandbox) onChange(textOf(text.trim()))
  }
  return (
    <form role="search" className="w-full sm:w-64" onSubmit={submit}>
      <input
        type="search"
        aria-label="Sandbox, by its id or name"
        placeholder="Sandbox: id or name, then Enter"
        autoComplete="off"
        spellCheck={false}
        className={inputLook}
        value={text}
        onChange={({ target }) => setText(target.value)}
        onBlur={submit}
      />
    </form>
  )
}
