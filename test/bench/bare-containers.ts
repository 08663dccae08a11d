import { execFile } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { promisify } from 'node:util'
import { imageDir } from '../support/images.ts'

const run = promisify(execFile)
export const criu = `${imageDir}/criu/criu`

/** Containers started by hand from bundles in one folder, each with its root mounted at `root`. */
export class BareContainers {
  protected readonly dir = mkdtempSync('/var/tmp/atoll-bench-')
  readonly #running = new Set<string>()
  #count = 0

  /** Also the name of its bundle below `dir`. */
  protected nextId(): string {
    this.#count += 1
    return `${this.dir.slice(this.dir.lastIndexOf('/') + 1)}-${this.#count}`
  }

  protected started(id: string): void {
    this.#running.add(id)
  }

  /** Starts a container in its prepared bundle from a dump; CRIU works in `restore` there. Returns its id. */
  protected async restoreFrom(id: string, images: string): Promise<string> {
    const bundle = `${this.dir}/${id}`
    const folders = `--image-path ${images} --work-path ${bundle}/restore`
    const script = `exec runc --criu ${criu} restore --detach ${folders} --bundle "$0" "$1" </dev/null >/dev/null 2>&1`
    await run('sh', ['-c', script, bundle, id])
    this.started(id)
    return id
  }

  async remove(id: string): Promise<void> {
    await run('runc', ['delete', '--force', id])
    await run('umount', [`${this.dir}/${id}/root`])
    await rm(`${this.dir}/${id}`, { recursive: true })
    this.#running.delete(id)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const id of this.#running) await this.remove(id)
    await rm(this.dir, { recursive: true })
  }
}
