import { useQueryClient } from '@tanstack/react-query'
import { NotFoundError, Sandbox } from 'atoll-sdk'
import { useEffect, useSyncExternalStore } from 'react'
import { useAccount } from '../account/account.tsx'
import { client } from '../account/client.ts'
import { useEvents, useMissed } from '../live/live.tsx'
import { SandboxCollection, type SandboxesView, type SandboxSource } from './collection.ts'
import { readSandbox, sandboxKey } from './sandbox.ts'

const source: SandboxSource = {
  list: () => Sandbox.list({ client }),
  async read(id) {
    try {
      return await readSandbox(id)
    } catch (error) {
      if (error instanceof NotFoundError) return undefined
      throw error
    }
  },
}

let kept: { keyId: string; collection: SandboxCollection } | undefined

/** The collection of the key that is signed in; another key begins with an empty one. */
export function useCollection(): SandboxCollection {
  const keyId = useAccount()?.key.id ?? ''
  if (kept?.keyId !== keyId) kept = { keyId, collection: new SandboxCollection(source) }
  return kept.collection
}

/** All sandboxes, kept up by the log for as long as the component is there. */
export function useSandboxes(): SandboxesView {
  const collection = useCollection()
  useEffect(() => collection.open(), [collection])
  useEvents((event) => collection.take(event))
  useMissed(() => collection.load())
  return useSyncExternalStore(collection.subscribe, collection.view)
}

/** Returns what reads one sandbox anew after an act, in the list and on its page: not each act has an event, and not each key reads the log. */
export function useRefresh(): (id: string) => void {
  const collection = useCollection()
  const queries = useQueryClient()
  return (id) => {
    collection.refresh(id)
    void queries.invalidateQueries({ queryKey: sandboxKey(id), exact: true })
  }
}
