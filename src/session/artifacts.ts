import type { Artifact } from './session.ts'

const artifactsMax = 200
/** Of all paths and summaries, in characters: a commit writes all of them, of which each can be three bytes. */
const artifactCharactersMax = 40 * 1024

/** Newest first, one entry a path; the oldest give way. */
export function withArtifact(artifacts: readonly Artifact[], artifact: Artifact): Artifact[] {
  const all = [artifact, ...artifacts.filter(({ path }) => path !== artifact.path)].slice(0, artifactsMax)
  let characters = 0
  const beyond = all.findIndex(({ path, summary }) => {
    characters += path.length + summary.length
    return characters > artifactCharactersMax
  })
  return beyond < 0 ? all : all.slice(0, beyond)
}
