export {
  type BuildEvent,
  type BuildFailure,
  defaultImageLimits,
  type Image,
  type ImageLayer,
  type ImageLimits,
} from './image.ts'
export { boundedArchive } from './archive-upload.ts'
export type { Context, PackedEntry } from './contexts/context.ts'
export { type Definitions, faultsOf } from './definitions.ts'
export type { ImageConfig } from './config.ts'
export type { Manifest, ManifestOutline } from './manifest.ts'
export { isReserved, type ReadableImage } from './names.ts'
export { type BuildOptions, Images, type ImageRequest, type ImageService, type ImageServiceDeps } from './service.ts'
export {
  type Credentials,
  type RegistryCredential,
  RegistryCredentials,
  type RegistryCredentialStore,
  type RegistryLogin,
} from './registry-credentials.ts'
export type { OciArchive } from './export/oci-archive.ts'
export { imagesOf, type ImageSelection, type ImageStore } from './store.ts'
