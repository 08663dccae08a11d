import { isServiceError } from '../errors.ts'
import type { ImageLimits } from './image.ts'
import { type Manifest, planOf } from './manifest.ts'

/** Images that the operator has defined, by name. Each is built when it is first asked for. */
export type Definitions = ReadonlyMap<string, Manifest>

/** The faults of definitions, each with the name of its definition. An unknown base is found only when the image is built. */
export async function faultsOf(definitions: Definitions, limits: ImageLimits): Promise<string[]> {
  const faults: string[] = []
  for (const [name, manifest] of definitions) {
    if (standsOnItself(name, definitions)) faults.push(`${name} stands on itself`)
    try {
      await planOf(manifest, limits)
    } catch (error) {
      if (!isServiceError(error)) throw error
      faults.push(`${name}: ${error.message}`)
    }
  }
  return faults
}

function standsOnItself(name: string, definitions: Definitions): boolean {
  const seen = new Set<string>()
  for (let base = definitions.get(name)?.base; base !== undefined; base = definitions.get(base)?.base) {
    if (base === name) return true
    if (seen.has(base)) return false
    seen.add(base)
  }
  return false
}
