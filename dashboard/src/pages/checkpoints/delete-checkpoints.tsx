import { useQueryClient } from '@tanstack/react-query'
import type { ListedCheckpointInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { visible } from '../../lib/visible.ts'
import { CodeLine } from '../../ui/copy.tsx'
import { Confirm } from '../../ui/dialog.tsx'
import { deleteCheckpoints, refreshCheckpoints } from './checkpoint.ts'
import { usesText } from './words.ts'

/** Ids that a line of a shell shows. */
const namedMax = 20

type Deleted = Pick<ListedCheckpointInfo, 'id' | 'name' | 'dependents'>

interface DeleteCheckpointsProps {
  checkpoints: readonly Deleted[]
  trigger: ReactNode
  onDeleted?: () => void
}

/** Asks first, with what makes use of them. */
export function DeleteCheckpoints({ checkpoints, trigger, onDeleted }: DeleteCheckpointsProps): ReactNode {
  const queries = useQueryClient()
  const [first] = checkpoints
  if (first === undefined) return null
  const isOne = checkpoints.length === 1
  const run = async () => {
    try {
      await deleteCheckpoints(checkpoints.map(({ id }) => id))
      // First: what is shown of one that is gone is not read anew.
      onDeleted?.()
    } finally {
      await refreshCheckpoints(queries)
    }
  }
  return (
    <Confirm
      trigger={trigger}
      title={isOne ? `Delete the checkpoint ${visible(first.name)}?` : `Delete ${checkpoints.length} checkpoints?`}
      action={isOne ? 'Delete the checkpoint' : `Delete ${checkpoints.length} checkpoints`}
      onConfirm={run}
    >
      <p>
        {isOne ? 'It is' : 'They are'} lost for good, with {isOne ? 'its' : 'their'} patches: no sandbox can be started
        from {isOne ? 'it' : 'them'} or restored to {isOne ? 'it' : 'them'} any more.
      </p>
      <Uses checkpoints={checkpoints} />
      {checkpoints.length <= namedMax && (
        <CodeLine
          className="mt-3 text-ink"
          label="Copy the CLI command"
          text={`atoll checkpoint rm ${checkpoints.map(({ id }) => id).join(' ')}`}
        />
      )}
    </Confirm>
  )
}

function Uses({ checkpoints }: { checkpoints: readonly Deleted[] }): ReactNode {
  const sum = (field: keyof Deleted['dependents']) =>
    checkpoints.reduce((total, { dependents }) => total + dependents[field], 0)
  const dependents = {
    sandboxes: sum('sandboxes'),
    sessions: sum('sessions'),
    images: sum('images'),
    checkpoints: sum('checkpoints'),
  }
  const text = usesText({ dependents })
  if (text === '') return null
  return (
    <p className="mt-2">
      In use by {text}. Sandboxes that were started from {checkpoints.length === 1 ? 'it' : 'them'} run on, each in a
      tree of its own
      {dependents.images > 0 && '; images that consist of it can start none any more'}.
    </p>
  )
}
