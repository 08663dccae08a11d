import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { PreviewVisit } from 'atoll-sdk'
import { useId } from 'react'
import { client } from '../account/client.ts'

export interface GuardedPreview {
  sandboxId: string
  port: number
}

interface FrameSource {
  /** Absent while it is asked for. */
  url: string | undefined
  error: unknown
  /** Asks for another one; where none is asked for it does nothing. */
  renew: () => void
}

/** What a frame opens. Of a guarded preview that is the address of one visit, good for a minute, so each frame asks for its own. */
export function useFrameSource(
  url: string,
  guarded: GuardedPreview | undefined,
  version: string | number,
): FrameSource {
  const queries = useQueryClient()
  const queryKey = ['preview-visit', useId(), guarded?.sandboxId, guarded?.port, version]
  const { data, error } = useQuery({
    queryKey,
    enabled: guarded !== undefined,
    gcTime: 0,
    queryFn: async ({ signal }): Promise<PreviewVisit> => {
      const { sandboxId, port } = guarded ?? { sandboxId: '', port: 0 }
      const path = `/api/sandboxes/${encodeURIComponent(sandboxId)}/preview/${port}/visit`
      return await client.json('POST', path, { repeat: 'always', signal })
    },
  })
  if (guarded === undefined) return { url, error: undefined, renew: () => undefined }
  return { url: data?.url, error: error ?? undefined, renew: () => void queries.resetQueries({ queryKey }) }
}
