/** The manifests of the OCI image specification and of Docker's second schema, as far as an import needs them. */
import { createHash } from 'node:crypto'
import { arch } from 'node:process'
import { posix } from 'node:path'
import { z } from 'zod'
import { TimeSlice } from '../../lib/async/time-slice.ts'
import { defined } from '../../lib/defined.ts'
import { firstFault } from '../../lib/first-fault.ts'
import { type JsonBounds, JsonBoundError, parseJson } from '../../lib/json-values.ts'
import { digestPattern } from '../../lib/image-reference.ts'
import type { ImageDefaults } from '../../sandbox/ports/runtime-driver.ts'
import { containerFacts, factsOf, textsOf } from './facts.ts'
import { imageTooLarge, refuseImage, type ImageField, type ImageLimits } from './limits.ts'

/** The architecture of this machine, as images name it. */
const architecture = arch === 'x64' ? 'amd64' : arch
const userPattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?$/
const envNamePattern = /^[A-Za-z_][A-Za-z0-9_]*$/
/** Many times what 128 layers with their history need. */
const jsonBounds: JsonBounds = { valuesMax: 20_000, depthMax: 100, fieldsMax: 1000 }
/** Bound of the variables, and of ENTRYPOINT and CMD, in characters: each command gets the variables (execve(2)). */
const wordsCharsMax = 128 * 1024
const wordsMax = 1000
const pathCharsMax = 4096
/** Bound of the names of an image's platforms in a message. */
const toldCharsMax = 300
const hashedAtOnceBytes = 256 * 1024

const descriptor = z.object({
  digest: z.string().regex(digestPattern),
  size: z.int().min(0),
  urls: z.array(z.string()).nullish(),
})
const manifest = z.object({ schemaVersion: z.literal(2), config: descriptor, layers: z.array(descriptor) })
const index = z.object({
  schemaVersion: z.literal(2),
  manifests: z.array(descriptor.extend({ platform: z.object({ architecture: z.string(), os: z.string() }).nullish() })),
})
const words = z.array(z.string()).nullish()
const configuration = z.object({
  architecture: z.string().optional(),
  os: z.string().optional(),
  rootfs: z.object({ diff_ids: z.array(z.string().regex(digestPattern)) }),
  config: z
    .object({
      Env: words,
      WorkingDir: z.string().nullish(),
      User: z.string().nullish(),
      Entrypoint: words,
      Cmd: words,
      ...containerFacts,
    })
    .nullish(),
})

export type Manifest = z.output<typeof manifest>

/** SHA-256 of a manifest. Yields to the event loop, since a manifest may have megabytes. */
export async function digestOf(bytes: Buffer): Promise<string> {
  const hash = createHash('sha256')
  const slice = new TimeSlice()
  for (let at = 0; at < bytes.length; at += hashedAtOnceBytes) {
    await slice.next()
    hash.update(bytes.subarray(at, at + hashedAtOnceBytes))
  }
  return `sha256:${hash.digest('hex')}`
}

/** Reads a manifest, or finds in an index the one for this machine. Throws `invalid_request` and `too_large`. */
export async function readManifest(
  bytes: Buffer,
  field: ImageField,
  limits: ImageLimits,
): Promise<Manifest | { instance: string }> {
  const value = await readJson(bytes, field)
  const list = index.safeParse(value, firstFault)
  if (list.success) return { instance: instanceFor(list.data.manifests, field) }
  const { data, success } = manifest.safeParse(value, firstFault)
  if (!success) throw refuseImage(field, 'has no manifest of the OCI format or of the second one of Docker')
  const parts = [data.config, ...data.layers]
  // The author of the image chooses these addresses, which a fetch would ask.
  if (parts.some(({ urls }) => (urls ?? []).length > 0)) {
    throw refuseImage(field, 'has a part that lies outside its registry')
  }
  if (data.layers.length > limits.layersMax) throw refuseImage(field, `has more than ${limits.layersMax} layers`)
  if (data.config.size > limits.manifestBytesMax) throw imageTooLarge(field, 'has too large a configuration')
  if (parts.reduce((sum, { size }) => sum + size, 0) > limits.downloadBytesMax) {
    throw imageTooLarge(field, `has more than ${limits.downloadBytesMax} bytes of compressed layers`)
  }
  return data
}

/** Reads the digests of the uncompressed layers, lowest first, and the image's settings of commands. Throws `invalid_request` and `too_large`. */
export async function readConfiguration(
  bytes: Buffer,
  field: ImageField,
): Promise<{ diffIds: string[]; defaults: ImageDefaults }> {
  const { data, success } = configuration.safeParse(await readJson(bytes, field), firstFault)
  if (!success) throw refuseImage(field, 'has no configuration of the OCI format')
  const { os = 'linux', architecture: made = architecture } = data
  if (os !== 'linux' || made !== architecture) {
    throw refuseImage(
      field,
      `is for ${os} on ${made}`.slice(0, toldCharsMax) + `, and this machine is linux on ${architecture}`,
    )
  }
  const { Env, WorkingDir, User, Entrypoint, Cmd, ...others } = data.config ?? {}
  if (User && !userPattern.test(User)) throw refuseImage(field, 'has a user that is neither a name nor a number')
  assertWords(Env ?? [], field, 'variables')
  assertWords([...(Entrypoint ?? []), ...(Cmd ?? [])], field, 'words in its ENTRYPOINT and CMD')
  for (const [what, given] of Object.entries(textsOf(others))) assertWords(given, field, what)
  if ((WorkingDir ?? '').length > pathCharsMax) throw imageTooLarge(field, 'has too long a working directory')
  const facts = Object.values(textsOf(others)).flat()
  const texts = [...(Env ?? []), ...(Entrypoint ?? []), ...(Cmd ?? []), WorkingDir ?? '', ...facts]
  if (texts.some((value) => value.includes('\0'))) throw refuseImage(field, 'has a NUL in its configuration')
  if (!texts.every((value) => value.isWellFormed()))
    throw refuseImage(field, 'has half a character in its configuration')
  const variables = (Env ?? []).map((line) => {
    const end = line.indexOf('=')
    return end === -1 ? ([line, ''] as const) : ([line.slice(0, end), line.slice(end + 1)] as const)
  })
  const defaults = {
    // Leave out names that no shell can read.
    env: Object.fromEntries(variables.filter(([name]) => envNamePattern.test(name))),
    ...defined({
      cwd: WorkingDir ? posix.resolve('/', WorkingDir) : undefined,
      user: User || undefined,
    }),
    entrypoint: Entrypoint ?? [],
    cmd: Cmd ?? [],
    ...factsOf(others),
  }
  return { diffIds: data.rootfs.diff_ids, defaults }
}

/** For each layer one digest of it and all layers below it: the "ChainID" of the specification. */
export function chainIds(diffIds: readonly string[]): string[] {
  const chain: string[] = []
  for (const diffId of diffIds) {
    const below = chain.at(-1)
    const joined = () => `sha256:${createHash('sha256').update(`${below} ${diffId}`).digest('hex')}`
    chain.push(below === undefined ? diffId : joined())
  }
  return chain
}

function instanceFor(manifests: z.output<typeof index>['manifests'], field: ImageField): string {
  const fit = manifests.find(({ platform }) => platform?.os === 'linux' && platform.architecture === architecture)
  // An archive may name one image several times.
  const isOne = new Set(manifests.map(({ digest }) => digest)).size === 1
  const alone = isOne && !manifests[0]?.platform ? manifests[0] : undefined
  const found = fit ?? alone
  if (found !== undefined) return found.digest
  const platforms = manifests.flatMap(({ platform }) => (platform ? [`${platform.os}/${platform.architecture}`] : []))
  const has = platforms.length > 0 ? platforms.slice(0, 10).join(', ').slice(0, toldCharsMax) : 'no single image'
  throw refuseImage(field, `is not for linux/${architecture}: it has ${has}`)
}

function assertWords(given: readonly string[], field: ImageField, what: string): void {
  const characters = given.reduce((sum, { length }) => sum + length, 0)
  if (given.length <= wordsMax && characters <= wordsCharsMax) return
  throw imageTooLarge(field, `has more than ${wordsMax} ${what}, or ${wordsCharsMax} characters of them`)
}

/** Parses JSON in slices, so that other work goes on, and counts the values before it makes them. */
async function readJson(bytes: Buffer, field: ImageField): Promise<unknown> {
  try {
    return await parseJson(bytes, jsonBounds)
  } catch (error) {
    if (error instanceof JsonBoundError) {
      throw imageTooLarge(field, 'has a manifest or a configuration with too many values')
    }
    throw refuseImage(field, 'has a manifest or a configuration that is no JSON')
  }
}
