import { isServiceError, ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { withRegistry } from '../lib/image-reference.ts'
import { nearest } from '../lib/nearest.ts'
import { sha256 } from '../lib/secret.ts'
import { assertEnvs, assertInput } from '../sandbox/index.ts'
import {
  type BuildPlan as StagePlan,
  lineNaming,
  parseDockerfile,
  refused,
  stagesNeeded,
  type StageSource,
} from './dockerfile/index.ts'
import type { Manifest, ManifestOutline } from './manifest.ts'

const secretsMax = 100
const secretBytesMax = 500 * 1024
/** Also the name of a file of the source tree, as in `type=secret,id=npm/token`. */
const secretIdPattern = /^[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}$/
const base64Pattern = /^[A-Za-z0-9+/]*={0,2}$/

/** What the build of a Dockerfile reads beside its text. */
export interface DockerfileInputs {
  /** The images that it names, with texts that change with their content. */
  images: ReadonlyMap<string, string>
  contextDigest?: string
}

/** Checks what the schema does not, and takes the secrets out. Throws `invalid_request` with the field, of a Dockerfile also the line. */
export function outlineOfDockerfile(
  { name: _name, secrets: given = {}, base, oci, steps, defaults: _defaults, ...rest }: Manifest,
  field: string,
): { outline: ManifestOutline; secrets: Map<string, Buffer> } {
  for (const [other, value] of Object.entries({ base, oci, steps }))
    assertInput(value === undefined, `${field}.${other}`, `is given together with ${field}.dockerfile`)
  assertEnvs(rest.buildArgs ?? {}, `${field}.buildArgs`)
  const secrets = decodedSecrets(given, `${field}.secrets`)
  const outline: ManifestOutline = { ...rest, base: '', steps: [], ...defined({ secrets: idsOf(secrets) }) }
  const plan = planStages(outline)
  if (outline.context === undefined) assertNoFilesNeeded(plan)
  return { outline: { ...outline, base: baseOf(plan) }, secrets }
}

function assertNoFilesNeeded({ stages }: StagePlan): void {
  const line = stages.find(({ contextLine }) => contextLine !== undefined)?.contextLine
  if (line !== undefined) throw noContext(line)
}

export function noContext(line: number): ServiceError {
  return refused(line, 'there are no files to copy: the build has no context')
}

/** The parts of a manifest that only a Dockerfile has. */
export function assertNoDockerfileParts(manifest: Manifest, field: string): void {
  const { context, buildArgs, target, noCache, secrets } = manifest
  for (const [part, value] of Object.entries({ context, buildArgs, target, noCache, secrets }))
    assertInput(value === undefined, `${field}.${part}`, `needs ${field}.dockerfile`)
}

export function planStages({ dockerfile = '', target, buildArgs }: ManifestOutline): StagePlan {
  return stagesNeeded(parseDockerfile(dockerfile), defined({ target, buildArgs }))
}

/** The names and references of the images that a plan begins with or copies from. */
export function imagesIn({ stages }: StagePlan): Set<string> {
  const sources = stages.flatMap(({ from, sources: named }): StageSource[] => [from, ...named.values()])
  return new Set(sources.flatMap((source) => (typeof source === 'object' && 'image' in source ? [source.image] : [])))
}

/** Looks an image of a plan up. A fault is told with the line that names the image. */
export async function withLineOf<Found>(plan: StagePlan, name: string, look: () => Promise<Found>): Promise<Found> {
  try {
    return await look()
  } catch (error) {
    if (!isServiceError(error) || error.code === 'internal_error') throw error
    const line = lineNaming(plan, name)
    const { code, details } = error
    const message = error.message.replace(/^image\.oci\b/, withRegistry(name))
    const stage = nearest(name, plan.stageNames)
    const why = stage === undefined ? message : `${message}; did you mean the stage ${stage}?`
    throw new ServiceError(code, `dockerfile line ${line}: ${why}`, {
      cause: error,
      details: { ...details, field: 'dockerfile', line },
    })
  }
}

/** The image that the target stands on, perhaps through other stages. */
function baseOf({ stages }: StagePlan): string {
  let source = stages.at(-1)?.from
  while (typeof source === 'object' && 'stage' in source) {
    const { stage } = source
    source = stages.find(({ index }) => index === stage)?.from
  }
  return typeof source === 'object' ? source.image : ''
}

/** Equal for builds that are one. */
export function dockerfileHash(outline: ManifestOutline, { images, contextDigest }: DockerfileInputs): string {
  const { dockerfile, buildArgs = {}, target, memory, startCommand, readyCommand } = outline
  const inputs = {
    ...{ revision: 1, dockerfile, target, context: contextDigest, memory, startCommand, readyCommand },
    images: [...images].toSorted(byName),
    buildArgs: Object.entries(buildArgs).toSorted(byName),
  }
  return sha256(JSON.stringify(inputs))
}

function byName([one]: readonly [string, string], [other]: readonly [string, string]): number {
  return one < other ? -1 : 1
}

function idsOf(secrets: ReadonlyMap<string, Buffer>): string[] | undefined {
  return secrets.size === 0 ? undefined : [...secrets.keys()].toSorted()
}

function decodedSecrets(given: Record<string, string>, field: string): Map<string, Buffer> {
  const entries = Object.entries(given)
  assertInput(entries.length <= secretsMax, field, `must be at most ${secretsMax}`)
  const secrets = new Map<string, Buffer>()
  for (const [id, content] of entries) {
    assertInput(secretIdPattern.test(id), field, `has an id that is none: ${JSON.stringify(id)}`)
    const isBase64 = content.length <= 2 * secretBytesMax && base64Pattern.test(content)
    const bytes = Buffer.from(isBase64 ? content : '', 'base64')
    assertInput(isBase64, `${field}.${id}`, `must be base64 of at most ${secretBytesMax} bytes`)
    assertInput(bytes.length <= secretBytesMax, `${field}.${id}`, `must be at most ${secretBytesMax} bytes`)
    secrets.set(id, bytes)
  }
  return secrets
}
