import type { KeyInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatCount, formatTime } from '../../../lib/format.ts'
import { CopyButton } from '../../../ui/copy.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { Facts } from '../../../ui/page.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { scopeTexts } from './scope-texts.ts'

/** All that is known of a key. Its secret is not. */
export function KeyDetails({
  apiKey,
  makerName,
  onClose,
}: {
  apiKey: KeyInfo
  makerName: string
  onClose: () => void
}): ReactNode {
  const { id, name, keyPrefix, scopes, namePrefix, sandboxesMax, expiresAt, lastUsedAt, createdAt } = apiKey
  return (
    <Dialog title={name === '' ? id : name} isOpen onOpenChange={onClose}>
      <div className="flex flex-col gap-4">
        <Facts
          items={[
            [
              'Id',
              <span className="flex items-center gap-1">
                <code className="min-w-0 font-mono text-[13px] break-all">{id}</code>
                <CopyButton text={id} label="Copy the id" />
              </span>,
            ],
            [
              'Begins with',
              keyPrefix === null ? 'not known' : <code className="font-mono text-[13px]">{keyPrefix}…</code>,
            ],
            ['Ends', expiresAt === null ? 'never' : <Time time={expiresAt} />],
            ['Last used', lastUsedAt === null ? 'never' : <Time time={lastUsedAt} />],
            ['Made', <Time time={createdAt} />],
            ['Made by', makerName],
            ['Names', namePrefix === null ? 'all' : `only those that begin with ${namePrefix}, and what it has made`],
            ['Sandboxes', sandboxesMax === null ? 'no bound of its own' : `at most ${formatCount(sandboxesMax)}`],
          ]}
        />
        <div>
          <h3 className="mb-1 font-medium">What it may do</h3>
          {scopes === null ? (
            <p>All, that of later versions too.</p>
          ) : (
            <ul className="flex flex-col gap-1">
              {scopes.map((scope) => (
                <li key={scope}>
                  <code className="font-mono text-[13px]">{scope}</code>{' '}
                  <span className="text-soft">{scopeTexts[scope]}</span>
                </li>
              ))}
            </ul>
          )}
        </div>
      </div>
    </Dialog>
  )
}

function Time({ time }: { time: string }): ReactNode {
  return (
    <span>
      {formatTime(time)} (<TimeAgo time={time} />)
    </span>
  )
}
