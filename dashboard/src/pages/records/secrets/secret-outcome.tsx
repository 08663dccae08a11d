import type { SecretSetInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'

/** What a set has reached: sandboxes that use the new value, and those that do not yet. */
export function SecretOutcome({ outcome }: { outcome: SecretSetInfo }): ReactNode {
  const { refreshed, failures, isComplete } = outcome
  return (
    <div className="flex flex-col gap-2">
      <p>
        {refreshed === 0
          ? 'No running sandbox uses it. Those that start with the store have it.'
          : `${refreshed === 1 ? 'One running sandbox uses' : `${refreshed} running sandboxes use`} it from their next request on.`}
      </p>
      {!isComplete && <p className="text-warn">Some sandboxes are still being refreshed.</p>}
      {failures.length > 0 && (
        <div role="alert">
          <p className="text-bad">
            {failures.length === 1 ? 'One sandbox goes' : `${failures.length} sandboxes go`} on as before:
          </p>
          <ul className="mt-1 max-h-40 overflow-y-auto" tabIndex={0}>
            {failures.map(({ sandboxId, error }) => (
              <li key={sandboxId} className="break-words">
                <code className="font-mono text-[13px]">{sandboxId}</code>: {error}
              </li>
            ))}
          </ul>
        </div>
      )}
    </div>
  )
}
