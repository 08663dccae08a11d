import './styles.css'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { AtollError } from 'atoll-sdk'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { accountKey } from './account/account.tsx'
import { onSignedOut } from './account/client.ts'
import { installStyleNonce } from './lib/style-nonce.ts'
import { installTheme } from './lib/theme.ts'
import { routerOf } from './router.tsx'
import { ToastProvider } from './ui/toasts.tsx'

installStyleNonce()
installTheme()

const keptMs = 60_000

// Nothing is read again by time or focus: the log of the organisation says what has changed.
const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: Infinity,
      gcTime: keptMs,
      refetchOnWindowFocus: false,
      // The SDK repeats what is worth it.
      retry: (failures, error) => !(error instanceof AtollError) && failures < 1,
    },
  },
})
const router = routerOf(queries)

onSignedOut(() => {
  if (location.pathname === '/sign-in' || queries.getQueryData(accountKey) === undefined) return
  queries.removeQueries()
  void router.navigate({ to: '/sign-in', search: { to: router.state.location.href } })
})

const root = document.getElementById('root')
if (root === null) throw new Error('the page has no root')
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <ToastProvider>
        <RouterProvider router={router} />
      </ToastProvider>
    </QueryClientProvider>
  </StrictMode>,
)
