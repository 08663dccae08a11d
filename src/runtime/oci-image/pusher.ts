import { randomBytes } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import { Semaphore } from '../../lib/async/semaphore.ts'
import type { ImageTarget } from '../../sandbox/ports/runtime-driver.ts'
import type { WorkGroups } from '../cgroups/work-groups.ts'
import { type DiskPool, importsFolder } from '../disk/index.ts'
import { storeArchive } from './archive.ts'
import type { ImageLimits } from './limits.ts'
import type { Registries } from './registry.ts'

interface PushOptions {
  limits: ImageLimits
  registries: Registries
  pool: DiskPool
  work: WorkGroups
  log: (message: string) => void
}

/** Sends images to registries. Each is stored in a folder of its own among those of imports first, which the next `open` removes after a crash. */
export class ImagePusher {
  readonly #options: PushOptions
  readonly #semaphore: Semaphore

  constructor(options: PushOptions) {
    this.#options = options
    this.#semaphore = new Semaphore({ permits: options.limits.importsAtOnce })
  }

  /** See `RuntimeDriver.pushImage`. */
  async push(
    archive: AsyncIterable<Uint8Array>,
    { reference, credentials }: ImageTarget,
    signal: AbortSignal,
  ): Promise<{ digest: string }> {
    const { limits, registries, pool, work, log } = this.#options
    registries.parse(reference, 'reference')
    const draft = `${importsFolder}/push-${randomBytes(8).toString('hex')}`
    const send = async () => {
      try {
        await pool.createSubvolume(draft)
        // skopeo unpacks the archive beside it.
        await pool.limit(draft, 2 * limits.downloadBytesMax)
        const path = pool.path(draft)
        await mkdir(`${path}/work`, { mode: 0o700 })
        await storeArchive(archive, `${path}/archive.tar`, limits, signal)
        const push = { archive: `${path}/archive.tar`, folder: `${path}/work`, reference, credentials }
        return { digest: await work.use('import', limits.work, (job) => registries.push(job, push, signal)) }
      } finally {
        await pool.remove(draft).catch((error: unknown) => log(`${draft} stays until the next start: ${String(error)}`))
      }
    }
    return await this.#semaphore.use(send, { signal })
  }
}
