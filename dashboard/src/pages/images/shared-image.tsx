import type { TemplateInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { visible } from '../../lib/visible.ts'
import { StateBadge } from '../../ui/badge.tsx'
import { CommandHint, quoted } from '../../ui/commands.tsx'
import { JsonText } from '../../ui/json-text.tsx'
import { Facts, Page, Panel } from '../../ui/page.tsx'
import { TimeAgo } from '../../ui/time.tsx'
import { StartLink } from './image-acts.tsx'

/** An image of the operator, of which other organisations see no more than this. */
export function SharedImage({ template }: { template: TemplateInfo }): ReactNode {
  const { name, status, dockerfile, createdAt } = template
  const isBuilt = status !== 'processing'
  return (
    <Page
      title={visible(name)}
      aside={<StateBadge state={isBuilt ? (status === 'error' ? 'failed' : status) : 'not built'} />}
      lead={
        isBuilt
          ? 'An image of the operator, for all organisations.'
          : 'Defined by the operator. It is built when it is first named, which takes its time once.'
      }
      actions={
        <>
          <CommandHint
            commands={{ cli: `atoll create --template ${quoted(name)}`, curl: { path: `/api/templates/${name}` } }}
          />
          <StartLink image={name} />
        </>
      }
    >
      {isBuilt && (
        <Panel title="Facts">
          <Facts items={[['Made', <TimeAgo key="made" time={createdAt} />]]} />
        </Panel>
      )}
      {dockerfile !== '' && (
        <Panel title="Dockerfile">
          <JsonText label="Dockerfile" value={dockerfile} className="max-h-[60dvh]" />
        </Panel>
      )}
    </Page>
  )
}
