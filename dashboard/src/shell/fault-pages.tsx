import { Link, type ErrorComponentProps } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { Page } from '../ui/page.tsx'
import { ErrorNote } from '../ui/states.tsx'

export function NotFoundPage(): ReactNode {
  return (
    <Page title="No such page">
      <p>
        Nothing lies at <code className="font-mono break-all">{location.pathname}</code>. What was there may have ended.{' '}
        <Link to="/" className="text-accent underline">
          Home
        </Link>
      </p>
    </Page>
  )
}

export function ErrorPage({ error, reset }: ErrorComponentProps): ReactNode {
  return (
    <Page title="This page has failed">
      <ErrorNote error={error} onRetry={reset} />
    </Page>
  )
}
