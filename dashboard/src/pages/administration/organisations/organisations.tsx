import { useNavigate, useSearch } from '@tanstack/react-router'
import { Plus } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { Page } from '../../../ui/page.tsx'
import { Tabs } from '../../../ui/tabs.tsx'
import { AuditLog } from '../../records/audit/audit-log.tsx'
import { ChainActions } from '../../records/audit/chain-actions.tsx'
import { OrganisationDialog } from './organisation-dialog.tsx'
import { OrganisationList } from './organisation-list.tsx'

const auditPath = '/api/operator/audit'

export function OrganisationsPage(): ReactNode {
  const { tab, ...search } = useSearch({ from: '/shell/organisations' })
  const navigate = useNavigate({ from: '/organisations' })
  const [isMaking, setMaking] = useState(false)
  const make = () => setMaking(true)
  return (
    <Page
      title="Organisations"
      isFilling
      lead="Each owns its sandboxes, sessions, images and keys, and sees nothing of another."
      actions={
        tab === 'audit' ? (
          <ChainActions path={auditPath} />
        ) : (
          <Button look="primary" onClick={make}>
            <Plus aria-hidden="true" className="size-4" /> New organisation
          </Button>
        )
      }
    >
      <Tabs
        label="Parts of the page"
        value={tab ?? 'list'}
        onChange={(next) => void navigate({ search: next === 'audit' ? { tab: next } : {} })}
        tabs={[
          { value: 'list', label: 'Organisations', content: <OrganisationList onMake={make} /> },
          {
            value: 'audit',
            label: 'Audit of the operator',
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
      {isMaking && (
        <OrganisationDialog
          onClose={() => setMaking(false)}
          onMade={({ id }) => void navigate({ to: '/organisations/$id', params: { id }, search: { tab: 'keys' } })}
        />
      )}
    </Page>
  )
}
