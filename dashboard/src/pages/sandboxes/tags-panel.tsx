import type { SandboxInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { nameOf, sandboxOf } from '../../sandboxes/sandbox.ts'
import { useRefresh } from '../../sandboxes/use-sandboxes.ts'
import { Badge } from '../../ui/badge.tsx'
import { Button } from '../../ui/button.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { Panel } from '../../ui/page.tsx'
import { tagCommands } from './commands.ts'
import { type Pair, PairsField, recordOf } from './pairs-field.tsx'

/** The tags of a sandbox, which can be replaced. */
export function TagsPanel({ info }: { info: SandboxInfo }): ReactNode {
  const [isOpen, setOpen] = useState(false)
  const mayWrite = useMay()('sandbox:write') && info.status !== 'stopped'
  const tags = Object.entries(info.tags)
  return (
    <Panel
      title="Tags"
      actions={
        mayWrite && (
          <Button size="small" onClick={() => setOpen(true)}>
            Edit
          </Button>
        )
      }
    >
      {tags.length === 0 ? (
        <p className="text-soft">None. Lists, usage and events can be chosen by tags.</p>
      ) : (
        <ul className="flex flex-wrap gap-1.5">
          {tags.map(([key, value]) => (
            <li key={key} className="min-w-0">
              <Badge title={`${key}=${value}`}>
                <bdi className="max-w-72 truncate">{value === '' ? key : `${key}=${value}`}</bdi>
              </Badge>
            </li>
          ))}
        </ul>
      )}
      {isOpen && <TagsDialog info={info} onClose={() => setOpen(false)} />}
    </Panel>
  )
}

function TagsDialog({ info, onClose }: { info: SandboxInfo; onClose: () => void }): ReactNode {
  const [pairs, setPairs] = useState<readonly Pair[]>(() => {
    const known = Object.entries(info.tags)
    return known.length === 0 ? [['', '']] : known
  })
  const refresh = useRefresh()
  const tags = recordOf(pairs)
  return (
    <FormDialog
      title={`Tags of ${nameOf(info)}`}
      isOpen
      onOpenChange={onClose}
      action="Save"
      onSubmit={async () => {
        await sandboxOf(info).setTags(tags)
        refresh(info.sandboxID)
        onClose()
      }}
      commands={tagCommands(nameOf(info), tags)}
    >
      <PairsField label="Tags" noun="tag" pairs={pairs} onChange={setPairs} />
    </FormDialog>
  )
}
