import type { Atoll, RequestOptions } from './atoll.ts'
import type { VolumeDetails, VolumeInfo, VolumeSnapshotInfo } from './types.ts'

/** A volume in a sandbox. */
export interface VolumeMount {
  name: string
  /** An absolute path; no volume lies in another. */
  path: string
  /** One sandbox may write a volume, any number may read it. Default false. */
  readOnly?: boolean | undefined
}

export interface CreateVolumeOptions extends RequestOptions {
  /** Size of the volume. Default 10 240, or that of `from`. */
  sizeMB?: number | undefined
  /** Begins as a clone of this volume, or of `volume@snapshot`. */
  from?: string | undefined
}

/** Folders that outlive sandboxes; `client.volumes`. */
export class Volumes {
  readonly #client: Atoll

  /** Use {@link Atoll.volumes}. */
  constructor(client: Atoll) {
    this.#client = client
  }

  async create(name: string, { sizeMB, from, ...options }: CreateVolumeOptions = {}): Promise<VolumeInfo> {
    return await this.#client.json('POST', '/api/volumes', { json: { name, sizeMB, from }, creates: true, ...options })
  }

  /** Volumes, sorted by name. */
  async list(options: RequestOptions = {}): Promise<VolumeInfo[]> {
    return await this.#client.json('GET', '/api/volumes', options)
  }

  /** A volume, what it holds, and the sandboxes that have it mounted. Throws `NotFoundError`. */
  async get(name: string, options: RequestOptions = {}): Promise<VolumeDetails> {
    return await this.#client.json('GET', pathOf(name), options)
  }

  /** Deletes a volume. Throws `ConflictError` while sandboxes have it or snapshots of it are left. */
  async delete(name: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', pathOf(name), options)
  }

  /** Freezes it as it is now, also while a sandbox writes to it. */
  async snapshot(volume: string, name: string, options: RequestOptions = {}): Promise<VolumeSnapshotInfo> {
    return await this.#client.json('POST', `${pathOf(volume)}/snapshots`, { json: { name }, creates: true, ...options })
  }

  /** Snapshots of a volume, oldest first. */
  async snapshots(volume: string, options: RequestOptions = {}): Promise<VolumeSnapshotInfo[]> {
    return await this.#client.json('GET', `${pathOf(volume)}/snapshots`, options)
  }

  /** Deletes a snapshot. Its clones stay. */
  async deleteSnapshot(volume: string, name: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', `${pathOf(volume)}/snapshots/${encodeURIComponent(name)}`, options)
  }
}

function pathOf(name: string): string {
  return `/api/volumes/${encodeURIComponent(name)}`
}
