import { ServiceError } from '../../errors.ts'
import type { Checkpoint } from '../../sandbox/index.ts'
import { readyCheckpoint } from '../checkpoint.ts'
import type { Image } from '../image.ts'
import type { ImageServiceDeps } from '../service.ts'

export interface ExportContext extends Pick<
  ImageServiceDeps,
  'store' | 'sandboxes' | 'limits' | 'log' | 'assertDiskTakesData'
> {
  /** The folder for files of exports under way; made if absent. */
  exportDir: string
}

/** The checkpoint of an image's files. One with memory would go on running its processes; the last layer has the files before they ran. */
export async function checkpointOfFiles({ store, sandboxes }: ExportContext, image: Image): Promise<Checkpoint> {
  const { orgId, id, name = id, layerHashes, manifest, checkpointId = '' } = image
  const last = manifest.memory ? layerHashes.at(-1) : undefined
  const [layer] = last === undefined ? [] : await store.layers(orgId, [last])
  const ofLayer = layer && (await readyCheckpoint(sandboxes, orgId, layer.checkpointId))
  const ofImage = await readyCheckpoint(sandboxes, orgId, checkpointId)
  if (ofImage === undefined) throw new ServiceError('conflict', `image ${name} has lost its data: build it again`)
  // Layers have no variables and no user of their own.
  return ofLayer === undefined ? ofImage : { ...ofLayer, sandboxConfig: ofImage.sandboxConfig }
}
