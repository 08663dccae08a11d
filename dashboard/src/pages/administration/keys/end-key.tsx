import { useQueryClient } from '@tanstack/react-query'
import type { KeyInfo } from 'atoll-sdk'
import { Trash2 } from 'lucide-react'
import type { ReactNode } from 'react'
import { useSignOut } from '../../../account/account.tsx'
import { formatCount, shorten } from '../../../lib/format.ts'
import { IconButton } from '../../../ui/button.tsx'
import { CommandLines } from '../../../ui/commands.tsx'
import { Confirm } from '../../../ui/dialog.tsx'
import { endingWith, type KeyPlace } from './place.ts'

const nameCharsMax = 60

/** Ends a key with those that it has made. The end of the key of this page signs out. */
export function EndKey({
  apiKey: { id, name },
  all,
  isOwn,
  place,
}: {
  apiKey: KeyInfo
  all: readonly KeyInfo[]
  /** The key of this page ends with it. */
  isOwn: boolean
  place: KeyPlace
}): ReactNode {
  const queries = useQueryClient()
  const signOut = useSignOut()
  const called = shorten(name === '' ? id : name, nameCharsMax)
  const end = async () => {
    await place.keys.delete(id)
    if (!isOwn) return await queries.invalidateQueries({ queryKey: place.queryKey })
    // The cookie has ended with its key, so the server may refuse to end it again.
    await signOut().catch(() => location.assign('/sign-in'))
  }
  return (
    <Confirm
      trigger={<IconButton label={`End the key ${called}`} icon={<Trash2 className="size-4" />} />}
      title={`End the key ${called}?`}
      action={isOwn ? 'End it and sign out' : 'End the key'}
      onConfirm={end}
    >
      <p>Its next call is refused, and what is open with it is cut within a second.</p>
      <Ending id={id} all={all} />
      {isOwn && <p className="mt-2 text-warn">This page is signed in with it: you are signed out.</p>}
      <div className="mt-3">
        <CommandLines
          commands={{
            cli: `atoll key rm ${id}${place.organisation === undefined ? '' : ` --org ${place.organisation}`}`,
          }}
        />
      </div>
    </Confirm>
  )
}

/** Drawn when the dialog is open. */
function Ending({ id, all }: { id: string; all: readonly KeyInfo[] }): ReactNode {
  const others = endingWith(id, all).length - 1
  if (others === 0) return null
  return (
    <p className="mt-2">
      {others === 1 ? 'A key that it has made ends too.' : `${formatCount(others)} keys that it has made end too.`}
    </p>
  )
}
