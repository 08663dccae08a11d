import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { ExcludePatterns, patternsIn } from '../../src/protocol/exclude-patterns.ts'
import type { Atoll } from './atoll.ts'
import type { DockerfileSource, Prepare, PrepareOptions } from './build-context.ts'
import { readContext, type ContextFiles } from './context-files.ts'
import { ChangedFileError, sendContext, type SentContext } from './context-upload.ts'
import { AtollError, withMessage } from './errors.ts'

/** A server takes no longer Dockerfile. */
const textBytesMax = 1024 * 1024

export const prepareInNode: Prepare = async (client, source, { secrets, image, ...given }) => {
  const { context, text, patterns } = await sourceOf(source)
  const options = { ...given, image: { ...image, dockerfile: text } }
  return {
    dockerfile: text,
    ...(readsFiles(text) ? { context: await send(client, context, { patterns, options }) } : {}),
    ...(secrets === undefined ? {} : { secrets: inBase64(secrets) }),
  }
}

function inBase64(secrets: Readonly<Record<string, string | Uint8Array>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(secrets).map(([id, content]) => [id, Buffer.from(content as Uint8Array).toString('base64')]),
  )
}

async function sourceOf(source: string | DockerfileSource) {
  const given: DockerfileSource = typeof source === 'string' ? await sourceAt(source) : source
  const { context = given.dockerfile === undefined ? '.' : dirname(given.dockerfile), ignore } = given
  if (given.text !== undefined)
    return { context, text: given.text, patterns: await patternsOf(ignore, [join(context, '.dockerignore')]) }
  const dockerfile = given.dockerfile ?? join(context, 'Dockerfile')
  const ignoreFiles = [`${dockerfile}.dockerignore`, join(context, '.dockerignore')]
  return { context, text: await textIn(dockerfile), patterns: await patternsOf(ignore, ignoreFiles) }
}

async function sourceAt(path: string): Promise<DockerfileSource> {
  const found = await stat(path)
  return found.isDirectory() ? { context: path } : { dockerfile: path }
}

/** Those of the first file that is there. */
async function patternsOf(lines: readonly string[] | undefined, files: readonly string[]): Promise<ExcludePatterns> {
  if (lines !== undefined) return new ExcludePatterns(lines)
  for (const file of files) {
    const text = await textIn(file).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
      throw error
    })
    if (text === undefined) continue
    try {
      return new ExcludePatterns(patternsIn(text))
    } catch (error) {
      throw withMessage(error, (reason) => `${file}: ${reason}`)
    }
  }
  return new ExcludePatterns([])
}

/** The text of a file, which may be a pipe. */
async function textIn(path: string): Promise<string> {
  const pieces: Buffer[] = []
  let bytes = 0
  for await (const piece of createReadStream(path) as AsyncIterable<Buffer>) {
    bytes += piece.length
    if (bytes > textBytesMax) throw new AtollError(`${path} has more than ${textBytesMax} bytes`)
    pieces.push(piece)
  }
  return Buffer.concat(pieces).toString()
}

/** Whether an instruction may read files of the context: without one, a large folder need not travel. */
function readsFiles(dockerfile: string): boolean {
  const joined = dockerfile.replaceAll(/[\\`][ \t]*\r?\n/g, '')
  return /copy|add|mount/i.test(joined)
}

interface Sending {
  patterns: ExcludePatterns
  options: PrepareOptions
}

/** Returns the id of the context. Of files that change meanwhile another reading is tried, once. */
async function send(client: Atoll, root: string, { patterns, options }: Sending): Promise<string> {
  const { signal, onProgress } = options
  const onFile = (files: number, total: number) => onProgress?.({ phase: 'reading', files, total })
  const read = async (known?: ContextFiles) => await readContext(root, patterns, { signal, onFile, known })
  const done = ({ entries, leftOut }: ContextFiles, { id, ...sent }: SentContext): string => {
    const files = entries.filter(({ type }) => type === 'file').length
    onProgress?.({ phase: 'sent', files, ...sent, leftOut })
    return id
  }
  const first = await read()
  try {
    return done(first, await sendContext(client, root, first, options))
  } catch (error) {
    if (!(error instanceof ChangedFileError)) throw error
  }
  const second = await read(first)
  try {
    return done(second, await sendContext(client, root, second, options))
  } catch (error) {
    if (!(error instanceof ChangedFileError)) throw error
    throw new AtollError(`${error.message}, twice: nothing was built`, { cause: error })
  }
}
