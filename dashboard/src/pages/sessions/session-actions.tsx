import type { SessionInfo } from 'atoll-sdk'
import { Download, Ellipsis, GitBranchPlus, Share2, Square } from 'lucide-react'
import { useQueryClient } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { Button, IconButton } from '../../ui/button.tsx'
import { CommandHint } from '../../ui/commands.tsx'
import { Confirm } from '../../ui/dialog.tsx'
import { Menu } from '../../ui/menu.tsx'
import { ForkPresentDialog } from './fork-present-dialog.tsx'
import { ShareDialog } from './travel/share-dialog.tsx'
import { sessionKey, sessionOf, titleOf } from './use-session.ts'

/** What can be done with a session as a whole. */
export function SessionActions({ session }: { session: SessionInfo }): ReactNode {
  const may = useMay()
  const queries = useQueryClient()
  const [isForking, setForking] = useState(false)
  const { id, status } = session
  const isRunning = status === 'running'
  const mayWrite = may('session:write')
  return (
    <>
      {mayWrite && (
        <ShareDialog
          session={session}
          trigger={
            <Button>
              <Share2 aria-hidden="true" className="size-4" /> Share
            </Button>
          }
        />
      )}
      {mayWrite && (
        <Button onClick={() => setForking(true)}>
          <GitBranchPlus aria-hidden="true" className="size-4" /> Fork
        </Button>
      )}
      {mayWrite && isRunning && (
        <Confirm
          trigger={
            <Button look="danger">
              <Square aria-hidden="true" className="size-3.5" /> End
            </Button>
          }
          title={`End “${titleOf(session)}”?`}
          action="End the session"
          onConfirm={async () => {
            await sessionOf(session).end()
            await queries.invalidateQueries({ queryKey: sessionKey(id) })
          }}
        >
          Its sandbox is killed with all that runs in it, and messages that wait are cancelled. What was said can be
          read, forked and exported until its history is removed.
          <span className="mt-2 flex items-center gap-1">
            <CommandHint
              label="Show the end as a command"
              commands={{
                cli: `atoll session rm ${id}`,
                curl: { method: 'DELETE', path: `/v1/sessions/${id}` },
                sdk: 'await session.end()',
              }}
            />
            as a command
          </span>
        </Confirm>
      )}
      <Menu
        label="More about the session"
        trigger={<IconButton label="More" icon={<Ellipsis className="size-4" />} look="plain" />}
        items={[
          {
            label: 'Export as JSON lines',
            icon: <Download aria-hidden="true" className="size-4" />,
            onSelect: () => download(`/v1/sessions/${id}/export`, `${id}.jsonl`),
          },
        ]}
      />
      {isForking && <ForkPresentDialog session={session} onClose={() => setForking(false)} />}
    </>
  )
}

/** The browser takes it to its disk as it comes, whatever its length. */
function download(href: string, fileName: string): void {
  const link = document.createElement('a')
  link.href = href
  link.download = fileName
  link.click()
}
