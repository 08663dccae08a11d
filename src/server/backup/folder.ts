import { spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { chmod, mkdir, open, readdir, readFile, realpath, rename, rm, stat } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { Readable, Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { ServiceError } from '../../errors.ts'
import { syncFolder } from '../../lib/sync-folder.ts'
import { lockName } from '../../lib/process-lock.ts'
import { sha256 } from '../../lib/secret.ts'
import { commandEnvironment } from '../../runtime/command.ts'
import { unlessMissing } from '../../lib/missing-files.ts'
import { type Manifest, manifestFile, manifestText, type Part, partsOf, readManifest } from './manifest.ts'

const partFolders = ['streams', 'images']
const reasonCharsMax = 600

/** The program that writes a part failed to read its source. */
export class SourceError extends ServiceError {
  constructor(message: string, options: ErrorOptions) {
    super('unavailable', message, options)
  }
}

/**
 * The folder of a backup. Parts are written under names that no manifest has yet, and the manifest last: the former backup stays whole
 * until the manifest has its name. One process at a time uses the folder.
 */
export class BackupFolder implements AsyncDisposable {
  readonly path: string
  #manifest: Manifest | undefined
  readonly #lock: AsyncDisposable

  private constructor(path: string, manifest: Manifest | undefined, lock: AsyncDisposable) {
    this.path = path
    this.#manifest = manifest
    this.#lock = lock
  }

  /** Makes the folder where there is none, and removes what a backup that was cut off has left. Throws `conflict`, `invalid_request`. */
  static async forBackup(given: string): Promise<BackupFolder> {
    await mkdir(given, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw refused(given, `cannot be made: ${error.message}`)
    })
    const path = await ownFolder(given)
    const names = await readdir(path)
    const isOther = !names.includes(manifestFile) && names.some((name) => !isOurs(name))
    if (isOther) throw refused(given, 'is not empty and holds no backup: give another one')
    await chmod(path, 0o700)
    for (const name of partFolders) await mkdir(join(path, name), { recursive: true, mode: 0o700 })
    const folder = await BackupFolder.#locked(path)
    await folder.#removeUnnamed(folder.manifest)
    return folder
  }

  /** Opens a folder that has a backup, and compares each part with its checksum. Throws `conflict`, `invalid_request`. */
  static async forRestore(given: string): Promise<BackupFolder & { readonly manifest: Manifest }> {
    const path = await ownFolder(given)
    if (!(await readdir(path)).includes(manifestFile))
      throw refused(given, `holds no backup: it has no ${manifestFile}`)
    const folder = await BackupFolder.#locked(path)
    return folder as BackupFolder & { readonly manifest: Manifest }
  }

  static async #locked(path: string): Promise<BackupFolder> {
    const lock = await lockName(`atoll-backup-${sha256(path).slice(0, 16)}`)
    if (lock === undefined) throw new ServiceError('conflict', `another backup or restore uses ${path}`)
    try {
      const text = await readFile(join(path, manifestFile), 'utf8').catch(unlessMissing)
      return new BackupFolder(path, text === undefined ? undefined : readManifest(text, path), lock)
    } catch (error) {
      await lock[Symbol.asyncDispose]()
      throw error
    }
  }

  /** The backup that is in it. */
  get manifest(): Manifest | undefined {
    return this.#manifest
  }

  file({ file }: Pick<Part, 'file'>): string {
    return join(this.path, file)
  }

  /** A name that no part has had. */
  freshName(name: string): string {
    return `${name}.${randomBytes(8).toString('hex')}`
  }

  /** Writes what a program prints. Throws {@link SourceError} when that fails, and `disk_full`. */
  async writeOutput(
    name: string,
    argv: readonly [string, ...string[]],
    options: { env?: NodeJS.ProcessEnv; signal: AbortSignal },
  ): Promise<Part> {
    let program: Program | undefined
    try {
      const part = await this.#write(name, () => {
        program = startProgram(argv, options)
        return program.stdout
      })
      const failure = await program?.ended
      options.signal.throwIfAborted()
      if (failure === undefined && part.bytes > 0) return part
      await rm(this.file(part), { force: true })
      throw new SourceError(`${basename(argv[0])}: ${failure?.message ?? 'it printed nothing'}`, { cause: failure })
    } finally {
      program?.kill()
      await program?.ended
    }
  }

  /** Writes a part and syncs it to the disk. A failure leaves nothing. Throws `disk_full`. */
  async write(name: string, text: string): Promise<Part> {
    return await this.#write(name, () => Readable.from([Buffer.from(text)]))
  }

  /** `start` is called when the file exists: the output of a program that ends before it is read is lost. */
  async #write(name: string, start: () => Readable): Promise<Part> {
    const path = join(this.path, name)
    const hash = createHash('sha256')
    let bytes = 0
    const count = new Transform({
      transform(chunk: Buffer, _encoding, next) {
        hash.update(chunk)
        bytes += chunk.length
        next(null, chunk)
      },
    })
    try {
      const file = await open(path, 'wx', 0o600)
      await pipeline(start(), count, file.createWriteStream({ flush: true }))
      return { file: name, bytes, sha256: hash.digest('hex') }
    } catch (error) {
      await rm(path, { force: true })
      throw asFolderError(error, this.path)
    }
  }

  /** Replaces the former backup and removes the parts that only it has. */
  async commit(manifest: Manifest): Promise<void> {
    try {
      for (const name of partFolders) await syncFolder(join(this.path, name))
      await syncFolder(this.path)
      const draft = join(this.path, `${manifestFile}.new`)
      await rm(draft, { force: true })
      const file = await open(draft, 'wx', 0o600)
      try {
        await file.writeFile(manifestText(manifest))
        await file.sync()
      } finally {
        await file.close()
      }
      await rename(draft, join(this.path, manifestFile))
      this.#manifest = manifest
      await syncFolder(this.path)
    } catch (error) {
      throw asFolderError(error, this.path)
    }
    await this.#removeUnnamed(manifest)
  }

  /** Removes the parts of a backup that has failed before its manifest had its name. */
  async abandon(): Promise<void> {
    await this.#removeUnnamed(this.manifest)
  }

  /** Throws `conflict` with the name of a part that is missing or damaged. */
  async verify(manifest: Manifest): Promise<void> {
    for (const part of partsOf(manifest)) {
      const path = this.file(part)
      const found = await stat(path).catch(unlessMissing)
      const refuse = (why: string) => new ServiceError('conflict', `${this.path} is damaged: ${part.file} ${why}`)
      if (found === undefined) throw refuse('is missing')
      if (found.size !== part.bytes) throw refuse(`has ${found.size} bytes, and should have ${part.bytes}`)
      const hash = createHash('sha256')
      await pipeline(createReadStream(path), hash)
      if (hash.digest('hex') !== part.sha256) throw refuse('does not have its checksum')
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#lock[Symbol.asyncDispose]()
  }

  async #removeUnnamed(manifest: Manifest | undefined): Promise<void> {
    const named = new Set([
      manifestFile,
      ...partFolders,
      ...(manifest === undefined ? [] : partsOf(manifest)).map(({ file }) => file),
    ])
    const nested = await Promise.all(
      partFolders.map(async (folder) => (await readdir(join(this.path, folder))).map((name) => `${folder}/${name}`)),
    )
    const found = [...(await readdir(this.path)).filter(isOurs), ...nested.flat()]
    for (const name of found) if (!named.has(name)) await rm(join(this.path, name), { force: true })
  }
}

interface Program {
  stdout: Readable
  /** Resolves with the error of a program that has failed. */
  ended: Promise<Error | undefined>
  kill(): void
}

function startProgram(
  [program, ...words]: readonly [string, ...string[]],
  { env, signal }: { env?: NodeJS.ProcessEnv; signal: AbortSignal },
): Program {
  const child = spawn(program, words, {
    env: { ...commandEnvironment(), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    signal,
  })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-reasonCharsMax)))
  const ended = new Promise<Error | undefined>((end) => {
    child.once('error', (error) => end(error))
    child.once('close', (code) => end(code === 0 ? undefined : new Error(said.trim() || `it ended with ${code}`)))
  })
  return { stdout: child.stdout, ended, kill: () => void child.kill('SIGKILL') }
}

/** Whether a backup writes such a name into the folder itself, also when it is cut off. */
function isOurs(name: string): boolean {
  return (
    [...partFolders, manifestFile, `${manifestFile}.new`].includes(name) ||
    /^(?:files|records|database)\.[0-9a-f]{16}$/.test(name)
  )
}

/** The real path of a folder of root that nobody else can write to. */
async function ownFolder(given: string): Promise<string> {
  const path = await realpath(resolve(given)).catch(() => undefined)
  if (path === undefined) throw refused(given, 'does not exist')
  const found = await stat(path)
  if (!found.isDirectory()) throw refused(given, 'is no folder')
  if (found.uid !== 0)
    throw refused(given, `belongs to the user ${found.uid}, who could change what root restores: chown root ${path}`)
  if ((found.mode & 0o022) !== 0) throw refused(given, `can be written by others than root: chmod 700 ${path}`)
  return path
}

function refused(given: string, why: string): ServiceError {
  return new ServiceError('invalid_request', `DIR: ${given} ${why}`)
}

function asFolderError(error: unknown, path: string): unknown {
  const { code } = error as NodeJS.ErrnoException
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new ServiceError('disk_full', `the disk of ${path} is full; the backup before this one is whole`, {
      cause: error,
    })
  }
  return error
}
