import { useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { UnauthorizedError } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { signIn } from '../../account/account.tsx'
import mark from '../../atoll.svg'
import { Button } from '../../ui/button.tsx'
import { TextField } from '../../ui/field.tsx'
import { reasonOf } from '../../ui/states.tsx'
import { useSubmit } from '../../ui/use-submit.ts'

/** Changes a key for a cookie. The page forgets the key at once. */
export function SignIn(): ReactNode {
  const { to = '/' } = useSearch({ from: '/sign-in' })
  const navigate = useNavigate()
  const queries = useQueryClient()
  const [key, setKey] = useState('')
  const { submit, isBusy, error } = useSubmit(async () => {
    await signIn(key.trim())
    queries.clear()
    await navigate({ href: to, replace: true })
  })
  const refusal =
    error === undefined
      ? undefined
      : error instanceof UnauthorizedError
        ? 'The server knows no such key, or it has ended.'
        : reasonOf(error)
  return (
    <main className="mx-auto flex min-h-full max-w-md flex-col justify-center gap-6 p-6">
      <div>
        <img src={mark} alt="" className="mb-4 size-9" />
        <h1 className="text-2xl font-semibold">Sign in to Atoll</h1>
        <p className="mt-1 text-soft">Cloud sandboxes and agent sessions on {location.host}.</p>
      </div>
      <form onSubmit={submit} className="flex flex-col gap-4">
        <TextField
          label="API key"
          name="key"
          type="password"
          autoComplete="current-password"
          autoFocus
          required
          value={key}
          onChange={({ target }) => setKey(target.value)}
          error={refusal}
          hint="The first key was printed when the server first started. It is changed for a cookie and kept nowhere in this page."
        />
        <Button type="submit" look="primary" isBusy={isBusy} className="self-start">
          Sign in
        </Button>
      </form>
      <p className="text-[13px] text-soft">
        <a href="/docs" className="text-accent underline">
          Docs
        </a>{' '}
        and the{' '}
        <a href="/docs/api" className="text-accent underline">
          API reference
        </a>{' '}
        need no key.
      </p>
    </main>
  )
}
