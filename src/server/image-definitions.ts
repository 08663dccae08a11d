import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ServiceError } from '../errors.ts'
import { namesIn } from '../lib/missing-files.ts'
import { type Definitions, faultsOf, type ImageLimits, isReserved, type Manifest } from '../image/index.ts'
import { images as wire } from '../protocol/http/index.ts'
import { ConfigError } from './config.ts'

const filePattern = /^([a-z0-9][a-z0-9._-]{0,63})\.(Dockerfile|json)$/
/** The definitions that come with Atoll. */
const ownFolder = join(import.meta.dirname, '../../images')

/**
 * The images that the operator offers to all organisations: a file `NAME.Dockerfile`, or `NAME.json` with a manifest as in
 * `POST /api/snapshots`, each. A definition of the operator replaces Atoll's of the same name. Throws a `ConfigError` with all faults.
 */
export async function readDefinitions(operatorFolder: string, limits: ImageLimits): Promise<Definitions> {
  const faults: string[] = []
  const read = new Map([...(await definitionsIn(ownFolder, faults)), ...(await definitionsIn(operatorFolder, faults))])
  const definitions = new Map([...read].map(([name, { manifest }]) => [name, manifest]))
  faults.push(...(await faultsOf(definitions, limits, (name) => read.get(name)?.path ?? name)))
  if (faults.length > 0) throw new ConfigError(faults)
  return definitions
}

interface ReadDefinition {
  path: string
  manifest: Manifest
}

async function definitionsIn(folder: string, faults: string[]): Promise<Map<string, ReadDefinition>> {
  const names = await namesIn(folder)
  const found = new Map<string, ReadDefinition>()
  // The folder may hold other files, such as notes.
  for (const file of names.filter((name) => /\.(Dockerfile|json)$/.test(name)).toSorted()) {
    const path = join(folder, file)
    const [, name = '', kind] = filePattern.exec(file) ?? []
    if (name === '' || name === 'base' || isReserved(name)) {
      faults.push(`${path}: an image of this name cannot be defined`)
    } else if (found.has(name)) {
      faults.push(`${path}: there is another definition of ${name} beside it`)
    } else {
      const manifest = parsed(await readFile(path, 'utf8'), kind, (fault) => faults.push(`${path}: ${fault}`))
      if (manifest !== undefined) found.set(name, { path, manifest })
    }
  }
  return found
}

function parsed(text: string, kind: string | undefined, report: (fault: string) => void): Manifest | undefined {
  try {
    if (kind === 'Dockerfile') return { dockerfile: text }
    const { data, error } = wire.manifest
      .omit({ name: true, context: true, noCache: true, secrets: true })
      .strict()
      .safeParse(JSON.parse(text))
    for (const { path, message } of error?.issues ?? []) report(`${path.join('.')} ${message}`)
    return data
  } catch (error) {
    if (!(error instanceof ServiceError || error instanceof SyntaxError)) throw error
    report(error.message)
    return undefined
  }
}
