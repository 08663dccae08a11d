import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { Whoami } from 'atoll-sdk'
import { client } from './client.ts'

/** Whose key the cookie of this page stands for. */
export type Account = Whoami
export type Scope = NonNullable<Account['key']['scopes']>[number]

export const accountKey = ['account'] as const

/** Read before any page but those without a key is drawn, so it is there. */
export function useAccount(): Account | undefined {
  return useQuery({
    queryKey: accountKey,
    queryFn: ({ signal }) => readAccount(signal),
    staleTime: Infinity,
    retry: false,
  }).data
}

export async function readAccount(signal?: AbortSignal): Promise<Account> {
  return await client.json('GET', '/api/whoami', { signal })
}

/** Whether the key of this page may do what needs the scope: what it may not is not offered. The operator acts for no organisation. */
export function useMay(): (scope: Scope | 'operator') => boolean {
  const account = useAccount()
  return (scope) => {
    if (account === undefined) return false
    if (scope === 'operator' || account.isOperator) return scope === 'operator' && account.isOperator
    return account.key.scopes?.includes(scope) ?? true
  }
}

/** The server sets the cookie; the key itself is kept nowhere in the page. Throws what the server refuses with. */
export async function signIn(key: string): Promise<void> {
  await client.json('POST', '/api/dashboard/sign-in', { json: { key } })
}

export function useSignOut(): () => Promise<void> {
  const queries = useQueryClient()
  return async () => {
    await client.json('POST', '/api/dashboard/sign-out')
    queries.clear()
    location.assign('/sign-in')
  }
}
