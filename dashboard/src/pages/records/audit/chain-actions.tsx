import { useMutation, useQueryClient } from '@tanstack/react-query'
import { Download, Link2 } from 'lucide-react'
import { type ReactNode, useState } from 'react'
import { client } from '../../../account/client.ts'
import { formatCount } from '../../../lib/format.ts'
import { Button } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { CodeLine } from '../../../ui/copy.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { useToast } from '../../../ui/toasts.tsx'
import { useAuditHead } from './entries.ts'

/** Where the chain ends and how it is checked, and all of it as a file. */
export function ChainActions({
  path,
  canTell = false,
  cliFlags = '',
}: {
  path: string
  /** The head can be told as an event. */
  canTell?: boolean
  /** Which audit the CLI reads. */
  cliFlags?: string
}): ReactNode {
  const [isOpen, setOpen] = useState(false)
  return (
    <>
      <CommandHint
        commands={{
          cli: `atoll audit ls --limit 20${cliFlags}\natoll audit export${cliFlags} > audit.jsonl`,
          curl: { path: `${path}?limit=20` },
          ...(canTell ? { sdk: 'for await (const entry of client.audit.list()) console.log(entry)' } : {}),
        }}
      />
      <Button onClick={() => setOpen(true)}>
        <Link2 aria-hidden="true" className="size-4" /> Chain
      </Button>
      {/* The browser writes it to disk as it comes, however long it is. */}
      <a
        href={`${path}/export`}
        download="audit.jsonl"
        className="inline-flex h-8 items-center gap-1.5 rounded-md border bg-raised px-3 font-medium hover:border-accent"
      >
        <Download aria-hidden="true" className="size-4" /> Export
      </a>
      {isOpen && (
        <Dialog title="The chain of the audit" size="wide" isOpen onOpenChange={setOpen}>
          <Chain path={path} canTell={canTell} cliFlags={cliFlags} />
        </Dialog>
      )}
    </>
  )
}

function Chain({ path, canTell, cliFlags }: { path: string; canTell: boolean; cliFlags: string }): ReactNode {
  const head = useAuditHead(path)
  const toast = useToast()
  const queries = useQueryClient()
  const tell = useMutation({
    mutationFn: () => client.audit.tellHead(),
    onSuccess: async ({ number }) => {
      toast({ text: `The head ${number} is told as the event audit.head.` })
      await queries.invalidateQueries({ queryKey: ['audit', 'head', path] })
    },
  })
  if (head.isPending) return <Loading label="Loading the head" />
  if (head.isError) return <ErrorNote error={head.error} onRetry={() => void head.refetch()} />
  const { number, hash, prunedNumber } = head.data
  const text = `${number}:${hash}`
  return (
    <div className="flex flex-col gap-4">
      <p>
        Each entry has a hash of the one before, so none can be altered, removed or inserted without a trace. Who
        controls the host can write a whole new chain or cut off its end: a head that you keep elsewhere shows both.
      </p>
      <div>
        <h3 className="mb-1 font-medium">The head now</h3>
        <CodeLine text={text} label="Copy the head" />
        {prunedNumber > 0 && (
          <p className="mt-1 text-[13px] text-soft">
            Entries up to {formatCount(prunedNumber)} were deleted because of their age. The rest can be verified.
          </p>
        )}
      </div>
      <div>
        <h3 className="mb-1 font-medium">How to verify it, later and elsewhere</h3>
        <div className="flex flex-col gap-2">
          <CodeLine text={`atoll audit verify --head ${text}${cliFlags}`} label="Copy the command that verifies" />
          <CodeLine
            text={`atoll audit verify audit.jsonl --head ${text}`}
            label="Copy the command that verifies an export"
          />
        </div>
        <p className="mt-1 text-[13px] text-soft">
          All hashes are computed anew where the command runs, without trust in the server.{' '}
          <a href="/docs/use/audit" className="text-accent underline">
            How the chain is made
          </a>
        </p>
      </div>
      {canTell && (
        <div className="flex flex-wrap items-center gap-2">
          <Button isBusy={tell.isPending} onClick={() => tell.mutate()}>
            Tell the head now
          </Button>
          <span className="text-[13px] text-soft">
            As the event audit.head, so that a webhook to another machine keeps it. It is told once a day by itself.
          </span>
          {tell.isError && <ErrorNote error={tell.error} />}
        </div>
      )}
    </div>
  )
}
