import { appendFile, type FileHandle, link, mkdir, open, rm, stat } from 'node:fs/promises'
import type { Log } from '../../lib/log.ts'
import { namesIn, unlessMissing } from '../../lib/missing-files.ts'
import type { BuildEvent, Image } from '../image.ts'

/** What a log keeps of a long build: its first part and, in segments of which the newest stay, its last. 10 MiB together. */
const firstBytes = 5 * 2 ** 20
const segmentBytes = 2 ** 20
const lastSegments = 5
const readBytes = 64 * 1024
/** A build that writes faster than the disk takes it waits. */
const waitingCharsMax = 256 * 1024
/** Logs of ended builds of one organisation; an older one goes. Their bytes count in no quota. */
const logsMax = 200

/** The log of a build under way, by its key, or that of an image. */
export type LogOf = { key: string } | Pick<Image, 'orgId' | 'id'>

/** Takes a line or output of a build, which goes on when it settles; never rejects, as no build fails for its log. */
export type Emit = (event: BuildEvent) => Promise<void>

/**
 * What builds have told, in files: a database would write each piece several times, and a log has to be readable when the server is killed while it grows.
 *
 * A log is a folder of segments, each named by the offset of its first byte. A gap between two is what was left out. `running/KEY` is
 * the log of a build under way; at its end each image that waits for it gets the log as `ended/ORGANISATION/ID`, as links to the same files.
 */
export class BuildLogs {
  readonly #dir: string
  readonly #log: Log

  constructor(dir: string, log: Log) {
    this.#dir = dir
    this.#log = log
  }

  /** Runs a build and writes its log, after that of an earlier server which the build goes on from. */
  async record<Result>(key: string, work: (note: Emit) => Promise<Result>): Promise<Result> {
    const draft = new LogDraft(this.#folder({ key }), (error) =>
      this.#log.warn({ err: error, build: key }, 'the log of a build could not be written'),
    )
    try {
      const result = await work((event) => draft.add(event))
      await draft.addLine('the image is ready')
      return result
    } catch (error) {
      await draft.addLine(`ended: ${(error as Error).message}`)
      throw error
    } finally {
      await draft.end()
    }
  }

  /** Gives an image the log of a build under way, or of another image. */
  async keep(image: Pick<Image, 'orgId' | 'id'>, from: LogOf): Promise<void> {
    const source = this.#folder(from)
    const folder = this.#folder(image)
    try {
      const segments = await segmentsIn(source)
      if (segments.length === 0) return
      await rm(folder, { recursive: true, force: true })
      await mkdir(folder, { recursive: true, mode: 0o700 })
      for (const { name } of segments) await link(`${source}/${name}`, `${folder}/${name}`)
      await this.#removeOldest(image.orgId)
    } catch (error) {
      this.#log.warn({ err: error, imageId: image.id }, 'the log of a build could not be kept')
    }
  }

  /** Passes the log of an image, or of a build under way, on as it is at this moment. Returns false when there is none. */
  async read(of: LogOf, send: (text: AsyncIterable<Buffer>) => Promise<void>): Promise<boolean> {
    const folder = this.#folder(of)
    const opened: OpenSegment[] = []
    try {
      // All at once: a build that goes on, or ends, removes segments.
      for (const { name, offset } of await segmentsIn(folder)) {
        const handle = await open(`${folder}/${name}`).catch(unlessMissing)
        if (handle !== undefined) opened.push({ handle, offset, size: (await handle.stat()).size })
      }
      if (opened.length > 0) await send(textOf(opened))
      return opened.length > 0
    } finally {
      for (const { handle } of opened) await handle.close()
    }
  }

  async remove(of: LogOf): Promise<void> {
    await rm(this.#folder(of), { recursive: true, force: true })
  }

  /** Removes the logs of ended builds of an organisation. */
  async removeAll(orgId: string): Promise<void> {
    await rm(`${this.#dir}/ended/${orgId}`, { recursive: true, force: true })
  }

  /** Removes the logs of builds under way but those with these keys. */
  async keepRunning(keys: ReadonlySet<string>): Promise<void> {
    for (const key of await namesIn(`${this.#dir}/running`)) if (!keys.has(key)) await this.remove({ key })
  }

  /** Removes the logs of images that are older, or whose image does not exist. */
  async removeOld(keptBefore: Date, exists: (id: string) => Promise<boolean>, signal?: AbortSignal): Promise<void> {
    for (const orgId of await namesIn(`${this.#dir}/ended`)) {
      for (const { id, keptAt } of await this.#keptIn(orgId)) {
        if (signal?.aborted) return
        if (keptAt < keptBefore || !(await exists(id))) await this.remove({ orgId, id })
      }
    }
  }

  async #removeOldest(orgId: string): Promise<void> {
    const kept = (await this.#keptIn(orgId)).toSorted((one, other) => other.keptAt.getTime() - one.keptAt.getTime())
    for (const { id } of kept.slice(logsMax)) await this.remove({ orgId, id })
  }

  async #keptIn(orgId: string): Promise<{ id: string; keptAt: Date }[]> {
    const kept: { id: string; keptAt: Date }[] = []
    for (const id of await namesIn(`${this.#dir}/ended/${orgId}`)) {
      const found = await stat(this.#folder({ orgId, id })).catch(unlessMissing)
      if (found !== undefined) kept.push({ id, keptAt: found.mtime })
    }
    return kept
  }

  #folder(of: LogOf): string {
    return 'key' in of ? `${this.#dir}/running/${of.key}` : `${this.#dir}/ended/${of.orgId}/${of.id}`
  }
}

/** Writes one log. After a fault, such as a full disk, it writes no more. */
class LogDraft {
  readonly #folder: string
  readonly #onFault: (error: unknown) => void
  #isBegun = false
  /** Of the segment that grows. */
  #offset = 0
  #size = 0
  #isLineStart = true
  #isBroken = false
  /** What waits while a piece is written: then it is one piece, since programs write many small ones. */
  #waiting: string[] = []
  #waitingChars = 0
  #written: Promise<void> | undefined

  constructor(folder: string, onFault: (error: unknown) => void) {
    this.#folder = folder
    this.#onFault = onFault
  }

  add(event: BuildEvent): Promise<void> {
    return event.event === 'build_log' ? this.addLine(event.message) : this.#add(event.data)
  }

  addLine(line: string): Promise<void> {
    return this.#add(`${this.#isLineStart ? '' : '\n'}${line}\n`)
  }

  /** Settles when all is written. */
  async end(): Promise<void> {
    await this.#written
  }

  async #add(text: string): Promise<void> {
    if (text === '' || this.#isBroken) return
    this.#isLineStart = text.endsWith('\n')
    this.#waiting.push(text)
    this.#waitingChars += text.length
    this.#written ??= this.#writeAll()
    if (this.#waitingChars > waitingCharsMax) await this.#written
  }

  async #writeAll(): Promise<void> {
    try {
      while (this.#waiting.length > 0) {
        const text = this.#waiting.join('')
        this.#waiting = []
        this.#waitingChars = 0
        await this.#write(Buffer.from(text))
      }
    } catch (error) {
      this.#isBroken = true
      this.#onFault(error)
    } finally {
      this.#written = undefined
    }
  }

  async #write(bytes: Buffer): Promise<void> {
    if (!this.#isBegun) await this.#begin()
    for (let at = 0; at < bytes.length;) {
      const free = (this.#offset === 0 ? firstBytes : segmentBytes) - this.#size
      const part = bytes.subarray(at, at + Math.max(free, 0))
      await this.#append(part)
      at += part.length
      if (part.length >= free) await this.#next()
    }
  }

  /** Goes on with the newest segment of an earlier server, or makes the folder. */
  async #begin(): Promise<void> {
    this.#isBegun = true
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    const newest = (await segmentsIn(this.#folder)).at(-1)
    if (newest === undefined) return
    this.#offset = newest.offset
    this.#size = (await stat(`${this.#folder}/${newest.name}`)).size
    await this.#append(Buffer.from('\nthe build goes on after a restart of the server\n'))
  }

  async #append(part: Buffer): Promise<void> {
    await appendFile(`${this.#folder}/${this.#offset}`, part, { mode: 0o600 })
    this.#size += part.length
  }

  async #next(): Promise<void> {
    this.#offset += this.#size
    this.#size = 0
    const [, ...rest] = await segmentsIn(this.#folder)
    // One more will be there.
    for (const { name } of rest.slice(0, 1 - lastSegments)) await rm(`${this.#folder}/${name}`)
  }
}

interface OpenSegment {
  handle: FileHandle
  offset: number
  size: number
}

async function* textOf(segments: readonly OpenSegment[]): AsyncGenerator<Buffer> {
  let end = 0
  for (const { handle, offset, size } of segments) {
    if (offset > end) yield Buffer.from(`\n[${offset - end} bytes are left out]\n`)
    for (let at = 0; at < size;) {
      const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(Math.min(readBytes, size - at)), {
        position: at,
      })
      if (bytesRead === 0) break
      at += bytesRead
      yield buffer.subarray(0, bytesRead)
    }
    end = offset + size
  }
}

async function segmentsIn(folder: string): Promise<{ name: string; offset: number }[]> {
  const names = await namesIn(folder)
  return names.map((name) => ({ name, offset: Number(name) })).toSorted((one, other) => one.offset - other.offset)
}
