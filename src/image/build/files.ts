import { createReadStream } from 'node:fs'
import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import type { Image } from '../image.ts'

/**
 * The contents of files of manifests whose builds have not ended, one folder a build. Records keep hashes of them alone, and a build that
 * goes on after a restart of the server needs them again.
 */
export class BuildFiles {
  readonly #dir: string

  constructor(dir: string) {
    this.#dir = dir
  }

  /** A crash leaves all of the files or none. */
  async write(key: string, contents: ReadonlyMap<string, Buffer>): Promise<void> {
    const [folder, draft] = [this.#folder(key), `${this.#folder(key)}.new`]
    await rm(draft, { recursive: true, force: true })
    await mkdir(draft, { recursive: true, mode: 0o700 })
    for (const [sha256, content] of contents)
      await writeFile(`${draft}/${sha256}`, content, { mode: 0o600, flush: true })
    await rm(folder, { recursive: true, force: true })
    await rename(draft, folder)
  }

  open(key: string, sha256: string): Readable {
    return createReadStream(`${this.#folder(key)}/${sha256}`)
  }

  async remove(key: string): Promise<void> {
    await rm(this.#folder(key), { recursive: true, force: true })
  }

  /** Removes what belongs to none of these builds. */
  async keepOnly(keys: ReadonlySet<string>): Promise<void> {
    const names = await readdir(this.#dir).catch(() => [])
    for (const name of names) if (!keys.has(name)) await rm(`${this.#dir}/${name}`, { recursive: true, force: true })
  }

  #folder(key: string): string {
    return `${this.#dir}/${key}`
  }
}

/** The key of a build and its files: a legal file name, as neither an id nor a hash has a slash. */
export function keyOf({ orgId, contentHash }: Pick<Image, 'orgId' | 'contentHash'>): string {
  return `${orgId}-${contentHash}`
}
