import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import type { OrganisationInfo } from 'atoll-sdk'
import { useMemo, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { Badge, StateBadge } from '../../../ui/badge.tsx'
import { Page } from '../../../ui/page.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { Tabs } from '../../../ui/tabs.tsx'
import { AuditLog } from '../../records/audit/audit-log.tsx'
import { ChainActions } from '../../records/audit/chain-actions.tsx'
import { KeyList } from '../keys/key-list.tsx'
import { useNewKey } from '../keys/new-key.tsx'
import { OrganisationActions } from './organisation-actions.tsx'
import { OrganisationOverview } from './organisation-overview.tsx'

export function OrganisationPage(): ReactNode {
  const { id } = useParams({ from: '/shell/organisations/$id' })
  const organisation = useQuery({
    queryKey: ['organisations', id],
    queryFn: ({ signal }) => client.organisations.get(id, { signal }),
  })
  if (organisation.isPending)
    return (
      <Page title="Organisation">
        <Loading label="Loading the organisation" rows={6} />
      </Page>
    )
  if (organisation.isError)
    return (
      <Page title="Organisation">
        <ErrorNote error={organisation.error} onRetry={() => void organisation.refetch()} />
        <Link to="/organisations" className="text-accent underline">
          All organisations
        </Link>
      </Page>
    )
  return <LoadedOrganisation organisation={organisation.data} />
}

function LoadedOrganisation({ organisation }: { organisation: OrganisationInfo }): ReactNode {
  const { id, name, status, suspendedReason, isDefault } = organisation
  const { tab, key, ...search } = useSearch({ from: '/shell/organisations/$id' })
  const navigate = useNavigate({ from: '/organisations/$id' })
  const auditPath = `/api/orgs/${id}/audit`
  const place = useMemo(
    () => ({
      keys: client.organisations.keys(id),
      path: `/api/orgs/${id}/keys`,
      queryKey: ['organisations', id, 'keys'],
      organisation: id,
    }),
    [id],
  )
  const newKey = useNewKey(place)
  return (
    <Page
      title={name}
      isFilling={tab !== undefined}
      aside={
        <>
          <StateBadge state={status} />
          {isDefault && <Badge>default</Badge>}
        </>
      }
      actions={
        tab === 'keys' ? (
          newKey.button
        ) : tab === 'audit' ? (
          <ChainActions path={auditPath} cliFlags={` --org ${id}`} />
        ) : (
          <OrganisationActions organisation={organisation} />
        )
      }
    >
      {status === 'suspended' && (
        <p className="rounded-md bg-bad-faint px-3 py-2 break-words text-bad">
          Suspended{suspendedReason === undefined ? '' : `: ${suspendedReason}`}. Its calls are refused, and what ran
          hibernates with its memory.
        </p>
      )}
      {status === 'deleting' && (
        <p className="rounded-md bg-bad-faint px-3 py-2 text-bad">
          It is being deleted with all that it has. When all is gone, this page finds it no more.
        </p>
      )}
      <Tabs
        label="Parts of the organisation"
        value={tab ?? 'overview'}
        onChange={(next) => void navigate({ search: next === 'keys' || next === 'audit' ? { tab: next } : {} })}
        tabs={[
          { value: 'overview', label: 'Overview', content: <OrganisationOverview organisation={organisation} /> },
          {
            value: 'keys',
            label: 'Keys',
            content: (
              <div className="flex min-h-0 flex-1 flex-col gap-3">
                <KeyList
                  place={place}
                  onMake={newKey.open}
                  openId={key}
                  onOpen={(opened) =>
                    void navigate({
                      search: { tab: 'keys', ...(opened === undefined ? {} : { key: opened }) },
                      replace: true,
                    })
                  }
                />
              </div>
            ),
          },
          {
            value: 'audit',
            label: 'Audit',
            content: (
              <div className="flex min-h-0 flex-1 flex-col gap-4">
                <AuditLog
                  place={{ path: auditPath, isFollowed: false }}
                  search={search}
                  onSearch={(next) => void navigate({ search: { tab: 'audit', ...next }, replace: true })}
                />
              </div>
            ),
          },
        ]}
      />
      {newKey.dialog}
    </Page>
  )
}
