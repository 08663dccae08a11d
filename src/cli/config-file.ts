import { randomBytes } from 'node:crypto'
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { reasonOf } from '../../sdk/src/reasons.ts'
import { CliError } from './exit-codes.ts'

export interface Context {
  url: string
  apiKey?: string
}

/** What `atoll login` saves. */
export interface Config {
  current?: string
  contexts: Record<string, Context>
}

export function configPath(env: NodeJS.ProcessEnv = process.env): string {
  return join(env['XDG_CONFIG_HOME'] || join(env['HOME'] || homedir(), '.config'), 'atoll', 'config.json')
}

/** The saved contexts; none where there is no file. A broken file is named and left as it is. */
export async function readConfig(path = configPath()): Promise<Config> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { contexts: {} }
    throw new CliError(`${path} cannot be read: ${reasonOf(error)}`, { cause: error })
  }
  try {
    return configOf(JSON.parse(text))
  } catch (error) {
    const hint = 'correct or remove it, and log in again'
    const why = error instanceof SyntaxError ? 'it is not JSON' : (error as Error).message
    throw new CliError(`${path} is no configuration of atoll: ${why}`, { hint, cause: error })
  }
}

export async function writeConfig(config: Config, path = configPath()): Promise<void> {
  await replaceFile(path, `${JSON.stringify(config, undefined, 2)}\n`, 0o600)
}

/** Replaces a file atomically: a reader gets the old or the new one. */
export async function replaceFile(path: string, text: string, mode: number): Promise<void> {
  const draft = `${path}.${randomBytes(6).toString('hex')}`
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 })
    await writeFile(draft, text, { mode, flag: 'wx', flush: true })
    await rename(draft, path)
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined)
    throw new CliError(`${path} cannot be written: ${reasonOf(error)}`, { cause: error })
  }
}

function configOf(value: unknown): Config {
  const { current, contexts = {} } = objectOf(value, 'it')
  if (current !== undefined && typeof current !== 'string') throw new TypeError('current must be a name')
  const checked = Object.entries(objectOf(contexts, 'contexts')).map(([name, context]): [string, Context] => {
    const { url, apiKey } = objectOf(context, `the context ${name}`)
    if (typeof url !== 'string') throw new TypeError(`the context ${name} has no url`)
    if (apiKey !== undefined && typeof apiKey !== 'string') throw new TypeError(`the key of ${name} must be text`)
    return [name, { url, ...(apiKey === undefined ? {} : { apiKey }) }]
  })
  return { ...(current === undefined ? {} : { current }), contexts: Object.fromEntries(checked) }
}

function objectOf(value: unknown, name: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new TypeError(`${name} must be an object`)
  return value as Record<string, unknown>
}
