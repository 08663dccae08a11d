import { queryOptions, useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { type ImageInfo, NotFoundError, type TemplateInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { visible } from '../../lib/visible.ts'
import { Badge, StateBadge } from '../../ui/badge.tsx'
import { Page, Panel } from '../../ui/page.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { BuildFailure } from './build-failure.tsx'
import { ImageActs, StartLink } from './image-acts.tsx'
import { ImageFacts } from './image-facts.tsx'
import { installedImage } from './listed-image.ts'
import { BuildLog } from './log/build-log.tsx'
import { ManifestView } from './manifest-view.tsx'
import { SharedImage } from './shared-image.tsx'

const route = getRouteApi('/shell/images/$image')

/** An own image, or what may be known of one of the server. */
type Found = { own: ImageInfo } | { shared: TemplateInfo }

function imageQuery(nameOrId: string) {
  const path = encodeURIComponent(nameOrId)
  return queryOptions({
    queryKey: ['images', 'one', nameOrId],
    queryFn: async ({ signal }): Promise<Found> => {
      try {
        return { own: await client.json<ImageInfo>('GET', `/api/images/${path}`, { signal }) }
      } catch (error) {
        if (!(error instanceof NotFoundError)) throw error
        return { shared: await client.json<TemplateInfo>('GET', `/api/templates/${path}`, { signal }) }
      }
    },
    enabled: nameOrId !== installedImage,
  })
}

export function ImagePage(): ReactNode {
  const { image } = route.useParams()
  return image === installedImage ? <InstalledImage /> : <NamedImage key={image} nameOrId={image} />
}

function NamedImage({ nameOrId }: { nameOrId: string }): ReactNode {
  const { data, error, refetch } = useQuery(imageQuery(nameOrId))
  if (data === undefined) {
    return (
      <Page title={nameOrId}>
        {error === null ? (
          <Loading label="Loading the image" rows={6} />
        ) : (
          <ErrorNote error={error} onRetry={() => void refetch()} />
        )}
      </Page>
    )
  }
  if ('shared' in data) return <SharedImage template={data.shared} />
  return <OwnImage info={data.own} />
}

function OwnImage({ info }: { info: ImageInfo }): ReactNode {
  return (
    <Page
      title={visible(info.name ?? info.id)}
      isFilling
      aside={
        <>
          <StateBadge state={info.status} />
          {info.public && <Badge title="Every organisation may start sandboxes from it">public</Badge>}
        </>
      }
      actions={<ImageActs info={info} />}
    >
      {info.status === 'failed' && <BuildFailure info={info} />}
      <div className="flex flex-col gap-4 lg:min-h-0 lg:flex-1 lg:flex-row">
        <div className="flex min-h-0 min-w-0 flex-1 flex-col max-lg:h-[32rem] max-lg:flex-none">
          <BuildLog image={info} />
        </div>
        <div className="flex flex-col gap-4 lg:w-96 lg:shrink-0 lg:overflow-y-auto">
          <Panel title="Facts">
            <ImageFacts info={info} />
          </Panel>
          <ManifestView info={info} />
        </div>
      </div>
    </Page>
  )
}

function InstalledImage(): ReactNode {
  return (
    <Page title={installedImage} aside={<StateBadge state="ready" />} actions={<StartLink image={installedImage} />}>
      <Panel>
        <p>
          Installed with the server, and what sandboxes start from that name no other: Debian 12 with bash, git, curl,
          jq, ripgrep, Python 3 with pip, Node 24 and npm, and a user <code className="font-mono">sandbox</code>.
        </p>
      </Panel>
    </Page>
  )
}
