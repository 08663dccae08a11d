import { execFile } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
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
    await run('sh', ['-c', script, bundle, id]).catch(async (cause: unknown) => {
      const log = await readFile(`${bundle}/restore/restore.log`, 'utf8').catch(() => 'CRIU wrote no log')
      const errors = log.split('\n').filter((line) => line.includes('Error'))
      throw new Error(`runc restore failed: ${errors.join('; ')}`, { cause })
    })
    this.started(id)
    return id
  }

  async remove(id: string): Promise<void> {
    await run('runc', ['delete', '--force', id])
    await this.#unmount(id)
    await rm(`${this.dir}/${id}`, { recursive: true })
    this.#running.delete(id)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const id of this.#running) await this.remove(id)
    // Those of a container whose restore failed.
    await this.#unmount('*')
    await rm(this.dir, { recursive: true })
  }

  async #unmount(ids: string): Promise<void> {
    const script = `cd "$0" && for mount in ${ids}/root ${ids}/etc ${ids}/run; do umount "$mount" 2>/dev/null || true; done`
    await run('sh', ['-c', script, this.dir])
  }
}
