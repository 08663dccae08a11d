import { ServiceError } from '../../errors.ts'
import type { Context } from '../contexts/context.ts'
import { imagesIn, planStages, withLineOf } from '../dockerfile-manifest.ts'
import type { Image } from '../image.ts'
import type { Bases } from '../usable-images.ts'
import { type Base, type DockerfileBuild, stagesOf } from './dockerfile-stages.ts'
import type { Emit } from './logs.ts'
import { logOf } from './sandbox.ts'

interface DockerfileInputs {
  context: Context | undefined
  secrets: ReadonlyMap<string, Buffer> | undefined
  bases: Pick<Bases, 'findBase'>
  emit: Emit
  signal: AbortSignal
}

/** Gets what the stages of a Dockerfile begin with, and plans them. Needs no permit of a build, as its bases need one. */
export async function prepareDockerfile(
  { orgId, manifest }: Pick<Image, 'orgId' | 'manifest'>,
  { context, secrets, bases, emit, signal }: DockerfileInputs,
): Promise<DockerfileBuild> {
  const plan = planStages(manifest)
  for (const warning of plan.warnings) await emit(logOf(0, 'warning', warning))
  const found = new Map<string, Base>()
  for (const name of imagesIn(plan)) {
    const base = await withLineOf(plan, name, () =>
      bases.findBase(orgId, name, { signal, onEvent: (event) => void emit(event) }),
    )
    await emit(logOf(0, 'from', `${name}: ${base.reference ?? 'an image of this server'}`))
    found.set(name, base)
  }
  const { buildArgs = {}, secrets: ids = [] } = manifest
  const secret = (id: string, isRequired: boolean): Buffer | undefined => {
    const content = secrets?.get(id)
    if (content !== undefined) return content
    if (secrets === undefined && ids.includes(id)) {
      const why = 'it was in memory alone, and the server was started again meanwhile: build the image again'
      throw new ServiceError('build_failed', `the secret ${id} is gone: ${why}`)
    }
    if (isRequired)
      throw new ServiceError('build_failed', `the build was not given the secret ${id}, which is required`)
    return undefined
  }
  return await stagesOf({ plan, bases: found, context, buildArgs, secret })
}
