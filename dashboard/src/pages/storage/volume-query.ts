import { queryOptions } from '@tanstack/react-query'
import { client } from '../../account/client.ts'

export const volumesQuery = queryOptions({
  queryKey: ['volumes', 'list'],
  queryFn: ({ signal }) => client.volumes.list({ signal }),
})

/** With what it holds and who has it, which the list does not say. */
export function volumeQuery(name: string) {
  return queryOptions({
    queryKey: ['volumes', 'one', name],
    queryFn: ({ signal }) => client.volumes.get(name, { signal }),
  })
}

export function snapshotsQuery(name: string) {
  return queryOptions({
    queryKey: ['volumes', 'one', name, 'snapshots'],
    queryFn: ({ signal }) => client.volumes.snapshots(name, { signal }),
  })
}
