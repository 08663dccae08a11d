import type { ReactNode } from 'react'
import { CodeLine } from '../../../ui/copy.tsx'
import { Panel } from '../../../ui/page.tsx'

/** Where Prometheus reads. The page itself draws none of it. */
export function HostMetrics({ isOperator }: { isOperator: boolean }): ReactNode {
  return (
    <Panel title="Metrics for Prometheus">
      <div className="flex flex-col gap-2">
        <p className="text-soft">
          Sandboxes by state, requests, previews and open streams. It needs no key, and is refused through a proxy.
        </p>
        <CodeLine text={`curl ${location.origin}/metrics`} label="Copy the command for the metrics" />
        {isOperator && (
          <>
            <p className="text-soft">What each organisation has used in the calendar month, with the operator’s key.</p>
            <CodeLine
              text={`curl -H "X-API-Key: $ATOLL_OPERATOR_KEY" ${location.origin}/api/operator/metrics`}
              label="Copy the command for the metrics of organisations"
            />
          </>
        )}
      </div>
    </Panel>
  )
}
