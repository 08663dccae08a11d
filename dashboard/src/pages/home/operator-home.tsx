import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { Page, Panel } from '../../ui/page.tsx'
import { HostPanel } from './host-panel.tsx'

/** The operator's key acts for no organisation: it sees the machine, and who shares it. */
export function OperatorHome(): ReactNode {
  return (
    <Page title="Home" lead="This key is the operator’s. It makes organisations and sees none of what they have.">
      <div className="grid grid-cols-1 items-start gap-4 lg:grid-cols-2">
        <Panel title="Organisations">
          <Link to="/organisations" className="text-accent underline">
            Organisations, their limits and keys
          </Link>
        </Panel>
        <HostPanel />
      </div>
    </Page>
  )
}
