import { useQueries, useQuery, type UseQueryResult } from '@tanstack/react-query'
import { type FilePatch, readFilePatch } from './file-patch.ts'
import { indexPatch, type PatchFile, type PatchIndex } from './patch-index.ts'

export type LoadPatch = () => Promise<string | ReadableStream<Uint8Array>>

// Not the defaults: what was read is large and forgotten as soon as it is not seen, and a person tries again.
const options = { gcTime: 0, retry: false, structuralSharing: false } as const

/** The patch of the comparison that `id` names, read when it is first wanted. */
export function usePatch(id: string, loadPatch: LoadPatch | undefined, isWanted: boolean): UseQueryResult<PatchIndex> {
  return useQuery({
    ...options,
    queryKey: ['patch', id],
    enabled: isWanted && loadPatch !== undefined,
    queryFn: async ({ signal }) => await indexPatch((await loadPatch?.()) ?? '', signal),
  })
}

/** The changes of those files of the patch that are open. */
export function useFilePatches(
  id: string,
  { data: index, dataUpdatedAt }: UseQueryResult<PatchIndex>,
  open: readonly PatchFile[],
): ReadonlyMap<PatchFile, UseQueryResult<FilePatch>> {
  const results = useQueries({
    queries: (index === undefined ? [] : open).map((file) => ({
      ...options,
      queryKey: ['patch', id, dataUpdatedAt, file.start],
      queryFn: () => readFilePatch(index ?? { files: [], bytes: new Blob(), isCut: false }, file),
    })),
  })
  return new Map(results.flatMap((result, index_) => (open[index_] === undefined ? [] : [[open[index_], result]])))
}
