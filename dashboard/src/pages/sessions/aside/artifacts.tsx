import type { SessionInfo } from 'atoll-sdk'
import { Download, Eye } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { IconButton } from '../../../ui/button.tsx'
import { CommandHint, quoted } from '../../../ui/commands.tsx'
import { EmptyState } from '../../../ui/states.tsx'
import { ArtifactView, filePathOf } from './artifact-view.tsx'

type Artifact = SessionInfo['project']['artifacts'][number]

/** Files that the agent has made or changed: the newest 200. */
export function Artifacts({ session }: { session: SessionInfo }): ReactNode {
  const { project, sandboxId, status } = session
  const [seen, setSeen] = useState<Artifact>()
  const may = useMay()
  const isReadable = status === 'running' && may('sandbox:read')
  if (project.artifacts.length === 0)
    return <EmptyState title="No artifacts yet">Files that the agent writes are listed here.</EmptyState>
  return (
    <>
      {status === 'ended' && (
        <p className="mb-2 text-[13px] text-soft">
          The files have gone with the sandbox. A fork of the session has them.
        </p>
      )}
      <ul className="divide-y rounded-lg border bg-raised">
        {project.artifacts.toReversed().map((artifact) => {
          const { path, summary } = artifact
          return (
            <li key={path} className="flex items-center gap-1 py-1 pr-1 pl-3">
              <span className="min-w-0 flex-1">
                <bdi className="block font-mono text-[13px] break-all">{path}</bdi>
                <span className="block text-[13px] break-words text-soft">{summary}</span>
              </span>
              {isReadable && (
                <>
                  <IconButton
                    label={`View ${path}`}
                    icon={<Eye aria-hidden="true" className="size-4" />}
                    onClick={() => setSeen(artifact)}
                  />
                  <a
                    href={filePathOf(sandboxId, path)}
                    download={path.split('/').at(-1)}
                    title={`Download ${path}`}
                    aria-label={`Download ${path}`}
                    className="inline-flex size-8 shrink-0 items-center justify-center rounded-md text-soft hover:bg-panel hover:text-ink"
                  >
                    <Download aria-hidden="true" className="size-4" />
                  </a>
                  <CommandHint
                    label={`Show the download of ${path} as a command`}
                    commands={{
                      cli: `atoll cp ${quoted(`${sandboxId}:${path}`)} .`,
                      curl: { path: filePathOf(sandboxId, path) },
                      sdk: `await sandbox.files.read(${JSON.stringify(path)})`,
                    }}
                  />
                </>
              )}
            </li>
          )
        })}
      </ul>
      {seen !== undefined && <ArtifactView sandboxId={sandboxId} path={seen.path} onClose={() => setSeen(undefined)} />}
    </>
  )
}
