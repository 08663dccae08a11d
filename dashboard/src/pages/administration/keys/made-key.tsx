import type { CreatedKeyInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { CodeLine } from '../../../ui/copy.tsx'
import { SecretOnce } from '../../../ui/secret-once.tsx'

/** The secret of a new key, and lines that use it. */
export function MadeKey({ made, onClose }: { made: CreatedKeyInfo; onClose: () => void }): ReactNode {
  return (
    <SecretOnce secret={made.key} label="Copy the key">
      <div>
        <h3 className="mb-1 font-medium">Try it</h3>
        <CodeLine
          text={`curl -H "X-API-Key: ${made.key}" ${location.origin}/api/whoami`}
          label="Copy the curl command"
        />
      </div>
      <div>
        <h3 className="mb-1 font-medium">For the CLI and the SDK</h3>
        <CodeLine
          text={`export ATOLL_URL=${location.origin} ATOLL_API_KEY=${made.key}`}
          label="Copy the environment variables"
        />
      </div>
      <p className="text-[13px] text-soft">
        Logs, events and answers name it by its public id, <code className="font-mono">{made.id}</code>.
      </p>
      <div className="flex justify-end">
        <Button look="primary" onClick={onClose}>
          Done
        </Button>
      </div>
    </SecretOnce>
  )
}
