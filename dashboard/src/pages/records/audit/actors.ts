import { useQuery } from '@tanstack/react-query'
import type { AuditEntryInfo } from 'atoll-sdk'
import { useMemo } from 'react'
import { useMay } from '../../../account/account.tsx'
import { client } from '../../../account/client.ts'

/** Names of keys by their id. */
export type ActorNames = ReadonlyMap<string, string>

const noNames: ActorNames = new Map()

/** The names of the keys that this key may list; ids stand for the others, and for keys that have ended. */
export function useActorNames(): ActorNames {
  const may = useMay()
  const keys = useQuery({
    queryKey: ['keys'],
    enabled: may('keys'),
    queryFn: ({ signal }) => client.keys.list({ signal }),
  })
  return useMemo(
    () => (keys.data === undefined ? noNames : new Map(keys.data.map(({ id, name }) => [id, name]))),
    [keys.data],
  )
}

/** Who acted, for people. */
export function actorText({ actorId, actorType }: AuditEntryInfo, names: ActorNames): string {
  if (actorId === null) return actorType
  const name = names.get(actorId)
  return name === undefined || name === '' ? actorId : name
}
