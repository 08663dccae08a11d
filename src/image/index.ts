export {
  type BuildEvent,
  type BuildFailure,
  defaultImageLimits,
  type Image,
  type ImageLayer,
  type ImageLimits,
} from './image.ts'
export { boundedArchive } from './archive-upload.ts'
export { type Definitions, faultsOf } from './definitions.ts'
export { manifestOf } from './dockerfile.ts'
export type { Manifest, ManifestOutline } from './manifest.ts'
export { type BuildOptions, Images, type ImageRequest, type ImageService, type ImageServiceDeps } from './service.ts'
export { imagesOf, type ImageSelection, type ImageStore } from './store.ts'
