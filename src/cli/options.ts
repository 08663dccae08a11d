import { InvalidArgumentError } from 'commander'
import type { VolumeMount } from '../../sdk/src/index.ts'
import { UsageError } from './exit-codes.ts'

export function wholeNumber(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError('It must be a whole number.')
  return Number(text)
}

export function portNumber(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0
  if (port < 1 || port > 65_535) throw new InvalidArgumentError('It must be a port, 1 to 65535.')
  return port
}

/** Collects `--env NAME=VALUE`, given once or more. */
export function pair(text: string, pairs: Record<string, string> = {}): Record<string, string> {
  const at = text.indexOf('=')
  if (at < 1) throw new InvalidArgumentError('It must be NAME=VALUE.')
  return { ...pairs, [text.slice(0, at)]: text.slice(at + 1) }
}

/** Collects `--volume NAME:/PATH[:ro]`, given once or more. */
export function volumeMount(text: string, mounts: readonly VolumeMount[] = []): VolumeMount[] {
  const [, name, path, readOnly] = /^([^:]+):(\/.*?)(:ro)?$/s.exec(text) ?? []
  if (name === undefined || path === undefined)
    throw new InvalidArgumentError('It must be NAME:/PATH or NAME:/PATH:ro.')
  return [...mounts, { name, path, readOnly: readOnly !== undefined }]
}

/** The path of a sandbox. Throws for a malformed id before the server is asked. */
export function sandboxPath(id: string): string {
  return `/api/sandboxes/${checkedId(id, 'sb-', 'sandbox')}`
}

export function checkedId(id: string, prefix: string, noun: string): string {
  if (/^[A-Za-z0-9_-]+$/.test(id) && id.startsWith(prefix)) return id
  throw new UsageError(`${JSON.stringify(id)} is no id of a ${noun}: those begin with ${prefix}`)
}
