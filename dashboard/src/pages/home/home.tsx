import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { useAccount, useMay } from '../../account/account.tsx'
import { client } from '../../account/client.ts'
import { Page } from '../../ui/page.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { BeginBar } from './begin-bar.tsx'
import { FirstMinute } from './first-minute.tsx'
import { HostPanel } from './host-panel.tsx'
import { NewestEvents } from './newest-events.tsx'
import { NewestSandboxes } from './newest-sandboxes.tsx'
import { NewestSessions } from './newest-sessions.tsx'
import { OperatorHome } from './operator-home.tsx'
import { UsagePanel } from './usage-panel.tsx'

/** What an account with nothing does first, and what one that has things wants to see. */
export function Home(): ReactNode {
  const account = useAccount()
  return account?.isOperator === true ? <OperatorHome /> : <OrganisationHome />
}

function OrganisationHome(): ReactNode {
  const may = useMay()
  // Each event of the log makes it stale.
  const { data, error, refetch } = useQuery({
    queryKey: ['usage-now', 'limits'],
    queryFn: ({ signal }) => client.limits({ signal }),
  })
  if (data === undefined)
    return (
      <Page title="Home">
        {error === null ? <Loading rows={6} /> : <ErrorNote error={error} onRetry={() => void refetch()} />}
      </Page>
    )
  const { sandboxes, sessions, images } = data.usage
  if (sandboxes + sessions + images === 0) return <FirstMinute />
  return (
    <Page title="Home" actions={<BeginBar />}>
      {error !== null && <ErrorNote error={error} onRetry={() => void refetch()} />}
      <div className="grid grid-cols-1 gap-4 lg:grid-cols-2">
        <UsagePanel own={data} />
        <HostPanel />
        {may('sandbox:read') && <NewestSandboxes />}
        {may('session:read') && <NewestSessions />}
        {may('events') && <NewestEvents className="lg:col-span-2" />}
      </div>
    </Page>
  )
}
