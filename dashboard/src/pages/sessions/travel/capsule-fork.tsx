import { useMutation, useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { GitBranchPlus } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { accountKey, readAccount } from '../../../account/account.tsx'
import { client, isUnauthorized } from '../../../account/client.ts'
import { Button } from '../../../ui/button.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { TextField } from '../../../ui/field.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { NameField } from '../name-field.tsx'

const userDefault = 'dashboard'

/** Begins a session from a shared moment. Whether the reader has a key is asked when they want that. */
export function CapsuleFork({ token }: { token: string }): ReactNode {
  const [isOpen, setOpen] = useState(false)
  return (
    <>
      <Button look="primary" onClick={() => setOpen(true)}>
        <GitBranchPlus aria-hidden="true" className="size-4" /> Start a session from here
      </Button>
      <Dialog
        title="Start a session from here"
        description="It has the files and the conversation of this moment. Programs begin anew, and it has none of the secrets."
        isOpen={isOpen}
        onOpenChange={setOpen}
      >
        {isOpen && <Begin token={token} onCancel={() => setOpen(false)} />}
      </Dialog>
    </>
  )
}

function Begin({ token, onCancel }: { token: string; onCancel: () => void }): ReactNode {
  const account = useQuery({ queryKey: accountKey, queryFn: ({ signal }) => readAccount(signal), retry: false })
  if (account.isError && isUnauthorized(account.error))
    return (
      <div className="flex flex-col items-start gap-3">
        <p>This needs a key of the organisation whose session it is.</p>
        <Link
          to="/sign-in"
          search={{ to: `/capsules/${encodeURIComponent(token)}` }}
          className="inline-flex h-8 items-center rounded-md bg-accent px-3 font-medium text-accent-ink hover:opacity-90"
        >
          Sign in
        </Link>
      </div>
    )
  if (account.isError) return <ErrorNote error={account.error} onRetry={() => void account.refetch()} />
  if (account.data === undefined) return <Loading rows={2} />
  const scopes = account.data.key.scopes
  if (account.data.isOperator || scopes?.includes('session:write') === false)
    return <p>The key that you have signed in with may not begin sessions. Sign in with one that may.</p>
  return <BeginForm token={token} onCancel={onCancel} />
}

function BeginForm({ token, onCancel }: { token: string; onCancel: () => void }): ReactNode {
  const [userId, setUserId] = useState(userDefault)
  const [name, setName] = useState('')
  const navigate = useNavigate()
  const begin = useMutation({
    mutationFn: () => client.capsule(token).fork({ userId, ...(name === '' ? {} : { name }) }),
    onSuccess: ({ id }) => navigate({ to: '/sessions/$sessionId', params: { sessionId: id } }),
  })
  return (
    <form
      className="flex flex-col gap-4"
      onSubmit={(event) => {
        event.preventDefault()
        begin.mutate()
      }}
    >
      <TextField
        label="User"
        hint="Whose session it is, as your product calls them."
        required
        value={userId}
        onChange={({ target }) => setUserId(target.value)}
      />
      <NameField value={name} onChange={setName} />
      {begin.isError && <ErrorNote error={begin.error} />}
      <div className="flex justify-end gap-2">
        <Button onClick={onCancel}>Cancel</Button>
        <Button type="submit" look="primary" isBusy={begin.isPending}>
          Start
        </Button>
      </div>
    </form>
  )
}
