import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, beforeEach } from 'node:test'
import { ServiceError } from '../../../errors.ts'
import type { ContextFile } from '../../../protocol/http/images.ts'
import { Contexts } from '../../contexts.ts'
import { defaultImageLimits, type ImageLimits } from '../../image.ts'

export function contextsIn(
  contextDir: string,
  limits: Partial<ImageLimits> = {},
  assertDiskTakesData = (): void => undefined,
): Contexts {
  const all = { ...defaultImageLimits, ...limits }
  return new Contexts({ contextDir, limits: all, signingSecret: 'secret', assertDiskTakesData })
}

/** The folder of each test of a file, and contexts in it. */
export async function contextFolders() {
  const top = await mkdtemp(join(tmpdir(), 'atoll-contexts-'))
  after(() => rm(top, { recursive: true }))
  let count = 0
  const world = {
    dir: top,
    contextsOf: (...options: [Partial<ImageLimits>?, (() => void)?]) => contextsIn(world.dir, ...options),
  }
  beforeEach(() => {
    world.dir = join(top, String(++count))
  })
  return world
}

export function sha256(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}

export function digestOf(content: string | Buffer): string {
  return `sha256:${sha256(content)}`
}

export function file(path: string, content: string | Buffer, more: Partial<ContextFile> = {}): ContextFile {
  const facts = { digest: digestOf(content), size: Buffer.byteLength(content) }
  return { path, type: 'file', mode: 0o644, ...facts, ...more }
}

export function folder(path: string, mode = 0o755): ContextFile {
  return { path, type: 'directory', mode }
}

export function symlink(path: string, target: string): ContextFile {
  return { path, type: 'symlink', mode: 0o777, target }
}

export async function* pieces(bytes: Buffer, length = 700): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length)
}

/** For `assert.rejects`. */
export function fails(code: string, message: RegExp): (error: unknown) => true {
  return (error) => {
    assert.ok(error instanceof ServiceError, String(error))
    assert.equal(error.code, code)
    assert.match(error.message, message)
    return true
  }
}

/** The names of all files below a folder. */
export async function filesIn(dir: string): Promise<string[]> {
  const found = await readdir(dir, { recursive: true, withFileTypes: true }).catch(() => [])
  return found.filter((one) => one.isFile()).map((one) => one.name)
}
