import { isServiceError } from '../errors.ts'
import { imagesIn, planStages } from './dockerfile-manifest.ts'
import type { ImageLimits } from './image.ts'
import { type Manifest, type ManifestOutline, planOf } from './manifest.ts'

/** Images that the operator has defined, by name. Each is built when it is first asked for. */
export type Definitions = ReadonlyMap<string, Manifest>

/**
 * The faults of definitions, each with what `titleOf` calls its definition. An unknown base is found only when the image is built.
 */
export async function faultsOf(
  definitions: Definitions,
  limits: ImageLimits,
  titleOf: (name: string) => string,
): Promise<string[]> {
  const faults: string[] = []
  const bases = new Map<string, string[]>()
  for (const [name, manifest] of definitions) {
    try {
      const { outline } = await planOf(manifest, limits)
      bases.set(name, basesOf(outline))
    } catch (error) {
      if (!isServiceError(error)) throw error
      faults.push(`${titleOf(name)}: ${error.message}`)
    }
  }
  for (const name of definitions.keys())
    if (standsOnItself(name, bases)) faults.push(`${titleOf(name)}: ${name} stands on itself`)
  return faults
}

function basesOf(outline: ManifestOutline): string[] {
  return outline.dockerfile === undefined ? [outline.base] : [...imagesIn(planStages(outline))]
}

function standsOnItself(name: string, bases: ReadonlyMap<string, readonly string[]>): boolean {
  const seen = new Set<string>()
  const waiting = [...(bases.get(name) ?? [])]
  for (let base = waiting.pop(); base !== undefined; base = waiting.pop()) {
    if (base === name) return true
    if (seen.has(base)) continue
    seen.add(base)
    waiting.push(...(bases.get(base) ?? []))
  }
  return false
}
