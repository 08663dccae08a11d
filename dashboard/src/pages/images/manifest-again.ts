import type { ImageInfo, ImageManifest } from 'atoll-sdk'

/** Steps whose files stand in an answer as sizes and hashes alone. */
const withContents: ReadonlySet<string> = new Set(['add_file', 'add_dir'])

/** The manifest of an image as a request; undefined where the answer lacks what the request had: contents of files, or secrets. */
export function manifestAgain(shown: ImageInfo['manifest']): ImageManifest | undefined {
  const { base, oci, steps = [], dockerfile, context, buildArgs, target, noCache, ...rest } = shown as ImageManifest
  const { builderMemoryMB, runtimeMemoryMB, memory, startCommand, readyCommand, secrets } = rest
  const isArchive = base === '' && oci === undefined && dockerfile === undefined
  if (secrets !== undefined || isArchive || steps.some(({ type }) => withContents.has(type))) return undefined
  const made =
    dockerfile === undefined
      ? { ...(oci === undefined ? { base } : { oci }), steps }
      : { dockerfile, context, buildArgs, target, noCache }
  const how = { builderMemoryMB, runtimeMemoryMB, memory, startCommand, readyCommand }
  return JSON.parse(JSON.stringify({ ...made, ...how })) as ImageManifest
}
