import { readFile } from 'node:fs/promises'
import { UsageError } from '../exit-codes.ts'

type Environment = Readonly<Record<string, string | undefined>>

/** A variable that is not set leaves the default of the Dockerfile in force, as with Docker. */
export function buildArgsOf(texts: readonly string[], environment: Environment = process.env): Record<string, string> {
  const pairs = texts.flatMap((one): [string, string][] => {
    const [name = '', ...value] = one.split('=')
    if (name === '') throw new UsageError(`--build-arg ${JSON.stringify(one)}: it must be NAME=VALUE or NAME`)
    if (value.length > 0) return [[name, value.join('=')]]
    const inherited = environment[name]
    return inherited === undefined ? [] : [[name, inherited]]
  })
  return Object.fromEntries(pairs)
}

/** Contents by id: of files and of variables of the environment. */
export async function secretsOf(
  texts: readonly string[],
  environment: Environment = process.env,
): Promise<Record<string, string | Uint8Array>> {
  const secrets: Record<string, string | Uint8Array> = {}
  for (const one of texts) {
    const { id, content } = await secretOf(one, environment)
    secrets[id] = content
  }
  return secrets
}

/** `id=X,src=FILE`, `id=X,env=NAME`, or `id=X` for the variable or else the file of that name, as Docker takes them. */
async function secretOf(spec: string, environment: Environment): Promise<{ id: string; content: string | Uint8Array }> {
  const refuse = (why: string): never => {
    throw new UsageError(`--secret ${JSON.stringify(spec)}: ${why}`)
  }
  const said: Record<string, string> = {}
  for (const part of spec.split(',')) {
    const [, field = '', value = ''] = /^(id|src|source|env|type)=(.*)$/s.exec(part) ?? []
    if (field === '') refuse('it must be id=ID with src=FILE or env=NAME')
    said[field === 'source' ? 'src' : field] = value
  }
  const { id = '', type, src, env } = said
  if (id === '') refuse('id=ID is missing')
  if (type !== undefined && type !== 'file' && type !== 'env') refuse('type is "file" or "env"')
  if (src !== undefined && env !== undefined) refuse('src and env exclude each other')
  const isVariable = type === 'env' || env !== undefined
  const value = isVariable || (type === undefined && src === undefined) ? environment[env ?? src ?? id] : undefined
  if (value !== undefined) return { id, content: value }
  if (isVariable) refuse(`the variable ${env ?? src ?? id} is not set`)
  return { id, content: await readFile(src ?? id) }
}
