import { useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { Page } from '../../../ui/page.tsx'
import { AuditLog } from './audit-log.tsx'
import { ChainActions } from './chain-actions.tsx'

const path = '/api/audit'

export function AuditPage(): ReactNode {
  const search = useSearch({ from: '/shell/audit' })
  const navigate = useNavigate({ from: '/audit' })
  return (
    <Page
      title="Audit"
      isFilling
      lead="Who has done what, to what, when and from where. A call is written before it is done."
      actions={<ChainActions path={path} canTell />}
    >
      <AuditLog
        place={{ path, isFollowed: true }}
        search={search}
        onSearch={(next) => void navigate({ search: next, replace: true })}
      />
    </Page>
  )
}
