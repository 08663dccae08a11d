import { useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { Image, type ImageInfo } from 'atoll-sdk'
import { Globe, GlobeLock, Play, Tag, Trash2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { useAccount, useMay } from '../../account/account.tsx'
import { client } from '../../account/client.ts'
import { Button } from '../../ui/button.tsx'
import { CommandHint, CommandLines, quoted } from '../../ui/commands.tsx'
import { Confirm } from '../../ui/dialog.tsx'
import { TagDialog } from './tag-dialog.tsx'

/** To the dialog that starts a sandbox from an image. */
export function StartLink({ image }: { image: string }): ReactNode {
  if (!useMay()('sandbox:write')) return null
  return (
    <Link
      to="/sandboxes"
      search={{ new: 'sandbox', template: image }}
      className="inline-flex h-8 items-center gap-1.5 rounded-md border border-transparent bg-accent px-3 font-medium whitespace-nowrap text-accent-ink hover:opacity-90"
    >
      <Play aria-hidden="true" className="size-4" /> Start a sandbox
    </Link>
  )
}

/** What can be done with an own image. */
export function ImageActs({ info }: { info: ImageInfo }): ReactNode {
  const [isTagOpen, setTagOpen] = useState(false)
  const account = useAccount()
  const isReady = info.status === 'ready'
  const nameOrId = info.name ?? info.id
  return (
    <>
      <CommandHint
        commands={{
          cli: `atoll image get ${quoted(nameOrId)}\natoll image log ${quoted(nameOrId)}${info.status === 'building' ? ' -f' : ''}\natoll create --template ${quoted(nameOrId)}`,
          curl: { path: `/api/images/${encodeURIComponent(nameOrId)}` },
          sdk: `const image = await Image.get('${nameOrId}')`,
        }}
      />
      {isReady && (
        <Button onClick={() => setTagOpen(true)}>
          <Tag aria-hidden="true" className="size-4" /> Give it a name
        </Button>
      )}
      {/* The act is of the whole organisation, so a key for some names has it not. */}
      {isReady && info.name !== undefined && account?.key.namePrefix === null && <Publishing info={info} />}
      <DeleteImage info={info} />
      {isReady && <StartLink image={nameOrId} />}
      {isTagOpen && <TagDialog info={info} onClose={() => setTagOpen(false)} />}
    </>
  )
}

function Publishing({ info }: { info: ImageInfo }): ReactNode {
  const queries = useQueryClient()
  const verb = info.public ? 'unpublish' : 'publish'
  const path = `/api/images/${encodeURIComponent(info.id)}/${verb}`
  const run = async () => {
    await client.json('POST', path, { repeat: 'always' })
    await queries.invalidateQueries({ queryKey: ['images'] })
  }
  return (
    <Confirm
      trigger={
        <Button>
          {info.public ? (
            <GlobeLock aria-hidden="true" className="size-4" />
          ) : (
            <Globe aria-hidden="true" className="size-4" />
          )}
          {info.public ? 'Make it private' : 'Publish'}
        </Button>
      }
      title={info.public ? `Make ${info.name} private?` : `Publish ${info.name}?`}
      action={info.public ? 'Make it private' : 'Publish'}
      onConfirm={run}
    >
      <p>
        {info.public
          ? 'Other organisations can start no sandbox from it any more. Those that they have run on.'
          : 'Every organisation of this server can then start sandboxes from its name, and read all files in them. Only the organisation of the operator may publish.'}
      </p>
      <div className="mt-3 text-ink">
        <CommandLines commands={{ curl: { method: 'POST', path } }} />
      </div>
    </Confirm>
  )
}

function DeleteImage({ info }: { info: ImageInfo }): ReactNode {
  const queries = useQueryClient()
  const navigate = useNavigate()
  const isBuilding = info.status === 'building'
  const run = async () => {
    await new Image(client, info).delete()
    await navigate({ to: '/images' })
    await queries.invalidateQueries({ queryKey: ['images', 'list'] })
  }
  return (
    <Confirm
      trigger={
        <Button look="danger">
          <Trash2 aria-hidden="true" className="size-4" /> {isBuilding ? 'End the build' : 'Delete'}
        </Button>
      }
      title={isBuilding ? 'End the build and delete the image?' : `Delete the image ${info.name ?? info.id}?`}
      action={isBuilding ? 'End the build' : 'Delete the image'}
      onConfirm={run}
    >
      <p>
        {isBuilding
          ? 'The steps that are done stay for a while, so that a build which begins with them goes on from there.'
          : 'No sandbox can be started from it any more, and its log goes with it. Sandboxes from it run on; other names of the same content stay.'}
      </p>
      <div className="mt-3 text-ink">
        <CommandLines commands={{ cli: `atoll image rm ${quoted(info.name ?? info.id)}` }} />
      </div>
    </Confirm>
  )
}
