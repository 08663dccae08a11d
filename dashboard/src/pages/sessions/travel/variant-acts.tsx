import { useQueryClient } from '@tanstack/react-query'
import type { SessionInfo, TurnInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { Button } from '../../../ui/button.tsx'
import { CommandHint, quoted } from '../../../ui/commands.tsx'
import { Confirm } from '../../../ui/dialog.tsx'
import { sessionOf, titleOf } from '../use-session.ts'

interface VariantActProps {
  fork: TurnInfo['forks'][number]
  label: string
  onChanged: () => void
}

interface KeepVariantProps extends VariantActProps {
  session: SessionInfo
  /** Other forks of this point. */
  othersCount: number
  onAdopted: (name: string) => void
}

/** Takes the session to where the fork stands. */
export function KeepVariant(props: KeepVariantProps): ReactNode {
  const { session, fork, label, othersCount, onAdopted, onChanged } = props
  const queries = useQueryClient()
  const adopt = async () => {
    await sessionOf(session).adopt(fork.id)
    onAdopted(label)
    onChanged()
    await queries.invalidateQueries({ queryKey: ['session', session.id] })
  }
  const others =
    othersCount === 0
      ? 'All other forks'
      : `The ${othersCount === 1 ? 'other variant' : `${othersCount} other variants`} and all other forks`
  return (
    <>
      <Confirm
        trigger={
          <Button size="small" look="primary">
            Keep this one
          </Button>
        }
        title={`Keep ${label}?`}
        action={`Keep ${label}`}
        onConfirm={adopt}
      >
        “{titleOf(session)}” then stands where this variant does: its files, processes and turns. A turn that runs there
        is interrupted. {others} of the session are archived: they hibernate, and a message wakes them again. It can be
        undone.
      </Confirm>
      <CommandHint
        commands={{
          cli: `atoll session adopt ${quoted(session.name ?? session.id)} ${quoted(fork.name ?? fork.id)}`,
          curl: {
            method: 'POST',
            path: `/v1/sessions/${session.id}/adopt`,
            json: { user_id: session.userId, from: fork.id },
          },
          sdk: `await session.adopt('${fork.id}')`,
        }}
      />
    </>
  )
}

/** Ends the session of a variant that nobody needs. */
export function EndVariant({ fork, label, onChanged }: VariantActProps): ReactNode {
  const queries = useQueryClient()
  const end = async () => {
    await client.json('DELETE', `/v1/sessions/${fork.id}`)
    onChanged()
    await queries.invalidateQueries({ queryKey: ['session', fork.id] })
  }
  return (
    <Confirm
      trigger={
        <Button size="small" look="quiet" className="ml-auto">
          End
        </Button>
      }
      title={`End ${label}?`}
      action={`End ${label}`}
      onConfirm={end}
    >
      Its sandbox is deleted with all files. What was said in it stays for as long as histories are kept.
    </Confirm>
  )
}
