import type { ReactNode } from 'react'
import { Page } from '../ui/page.tsx'
import { EmptyState } from '../ui/states.tsx'
import { type Scope, useAccount, useMay } from './account.tsx'

/** Draws a page for a key that may use it; for another it says what lacks, and nothing is asked of the server. */
export function Needs({
  scope,
  title,
  children,
}: {
  scope: Scope | 'operator'
  title: string
  children: ReactNode
}): ReactNode {
  const may = useMay()
  const account = useAccount()
  if (may(scope)) return children
  return (
    <Page title={title}>
      {account?.isOperator === true ? (
        <EmptyState title="This page is of an organisation">
          The operator’s key acts for none. Sign in with a key of the organisation.
        </EmptyState>
      ) : scope === 'operator' ? (
        <EmptyState title="This page is of the operator">
          Sign in with the operator’s key, which the first start of the server has printed.
        </EmptyState>
      ) : (
        <EmptyState title="This key may not see this">
          It lacks the scope <code className="font-mono">{scope}</code>. Sign in with a key that has it.
        </EmptyState>
      )}
    </Page>
  )
}
