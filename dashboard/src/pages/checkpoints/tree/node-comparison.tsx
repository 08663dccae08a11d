import { useQuery } from '@tanstack/react-query'
import type { SandboxTreeNode } from 'atoll-sdk'
import { ArrowRight } from 'lucide-react'
import { useId, useState, type FormEvent, type ReactNode } from 'react'
import { ComparisonView } from '../../../diff/comparison-view.tsx'
import { literalOf } from '../../../sandboxes/literal.ts'
import { readSandbox, sandboxOf } from '../../../sandboxes/sandbox.ts'
import { Button } from '../../../ui/button.tsx'
import { CommandHint, quoted } from '../../../ui/commands.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { inputLook } from '../../../ui/field.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { labelOf, type TreeLayout } from './layout.ts'

interface NodeComparisonProps {
  layout: TreeLayout
  /** Ids of nodes: a checkpoint, and a checkpoint or a sandbox, which stands for the disk that it has now. */
  from: string
  to: string
  onChange: (pair: { from: string; to: string }) => void
  onClose: () => void
}

const folderDefault = '/workspace'

/** How the files of two nodes differ. */
export function NodeComparison({ layout, from, to, onChange, onClose }: NodeComparisonProps): ReactNode {
  const [folder, setFolder] = useState(folderDefault)
  const nodes = layout.rows.map(({ node }) => node)
  const checkpoints = nodes.filter(({ type, status }) => type === 'checkpoint' && status === 'ready')
  const live = nodes.filter(({ type, status }) => type === 'sandbox' && status !== 'stopped')
  const later = nodes[layout.indexOf.get(to) ?? -1]
  const isNow = later?.type === 'sandbox'
  // Any sandbox of the tree that is there will do for two checkpoints.
  const sandboxId = isNow ? to : (live[0]?.id ?? nodes.find(({ type }) => type === 'sandbox')?.id)
  const asked = { from, to: isNow ? undefined : to, folder: folder === folderDefault ? undefined : folder }
  const query = useQuery({
    // Not below `tree`: events would have the server compare anew, again and again.
    queryKey: ['comparison', sandboxId, asked],
    staleTime: isNow ? 0 : Infinity,
    enabled: sandboxId !== undefined,
    queryFn: async ({ signal }) =>
      await sandboxOf(await readSandbox(sandboxId ?? '', signal)).diff({ ...asked, signal }),
  })
  const { data } = query
  return (
    <Dialog title="What differs" size="wide" isOpen onOpenChange={onClose}>
      <div className="flex flex-col gap-4">
        <div className="grid grid-cols-1 items-end gap-2 sm:grid-cols-[1fr_auto_1fr_auto]">
          <DiskSelect
            label="From"
            value={from}
            onChange={(id) => onChange({ from: id, to })}
            groups={[['Checkpoints', checkpoints]]}
          />
          <ArrowRight aria-hidden="true" className="mb-2 size-4 text-soft max-sm:hidden" />
          <DiskSelect
            label="To"
            value={to}
            onChange={(id) => onChange({ from, to: id })}
            groups={[
              ['The present of', live],
              ['Checkpoints', checkpoints],
            ]}
          />
          {sandboxId !== undefined && (
            <CommandHint
              commands={{
                cli: `atoll diff ${sandboxId} ${from}${isNow ? '' : ` ${to}`}${asked.folder === undefined ? '' : ` --folder ${quoted(folder)}`}`,
                curl: {
                  path: `/api/sandboxes/${sandboxId}/diff?${new URLSearchParams(Object.entries(asked).filter((entry): entry is [string, string] => entry[1] !== undefined)).toString()}`,
                },
                sdk: `const { files } = await sandbox.diff(${literalOf(asked)})`,
              }}
            />
          )}
        </div>
        <div className="flex items-center gap-2">
          <FolderForm folder={folder} onChange={setFolder} />
          {isNow && (
            <Button isBusy={query.isFetching} onClick={() => void query.refetch()}>
              Compare again
            </Button>
          )}
        </div>
        {query.isError && <ErrorNote error={query.error} onRetry={() => void query.refetch()} />}
        {query.isPending && <Loading label="Comparing the files" rows={4} />}
        {data !== undefined && (
          <ComparisonView
            key={`${from} ${to} ${folder} ${query.dataUpdatedAt}`}
            label={`Files of ${folder} that differ`}
            className="max-h-[60dvh]"
            files={data.files}
            isPartial={data.isCut}
            loadPatch={async () => await sandboxOf(await readSandbox(sandboxId ?? '')).patchStream(asked)}
          />
        )}
      </div>
    </Dialog>
  )
}

interface DiskSelectProps {
  label: string
  value: string
  groups: readonly (readonly [label: string, nodes: readonly SandboxTreeNode[]])[]
  onChange: (id: string) => void
}

function DiskSelect({ label, value, groups, onChange }: DiskSelectProps): ReactNode {
  const id = useId()
  const isKnown = groups.some(([, nodes]) => nodes.some((node) => node.id === value))
  return (
    <div className="flex min-w-0 flex-col gap-1">
      <label htmlFor={id} className="font-medium">
        {label}
      </label>
      <select id={id} className={inputLook} value={value} onChange={({ target }) => onChange(target.value)}>
        {!isKnown && <option value={value}>{value}</option>}
        {groups.map(([group, nodes]) => (
          <optgroup key={group} label={group}>
            {nodes.map((node) => (
              <option key={node.id} value={node.id}>
                {labelOf(node)}
              </option>
            ))}
          </optgroup>
        ))}
      </select>
    </div>
  )
}

/** The server compares when the text stands. */
function FolderForm({ folder, onChange }: { folder: string; onChange: (folder: string) => void }): ReactNode {
  const [text, setText] = useState(folder)
  const submit = (event: FormEvent) => {
    event.preventDefault()
    onChange(text.trim() === '' ? folderDefault : text.trim())
  }
  return (
    <form onSubmit={submit} className="min-w-0 flex-1">
      <label className="flex items-center gap-2">
        <span className="font-medium">Folder</span>
        <input
          className={inputLook}
          autoComplete="off"
          spellCheck={false}
          value={text}
          onChange={({ target }) => setText(target.value)}
          onBlur={submit}
        />
      </label>
    </form>
  )
}
