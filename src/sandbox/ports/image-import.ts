/**
 * A reference such as `registry.example.com/team/app:1.2`, with credentials in place of those that the operator has for the registry, or the
 * bytes of an OCI or docker archive, also compressed.
 */
export type ImageSource =
  | { reference: string; credentials?: RegistryCredentials }
  | { archive: AsyncIterable<Uint8Array> }

export interface RegistryCredentials {
  username: string
  password: string
}

/** Where an image goes. Those of the operator are never used. */
export interface ImageTarget {
  /** With a tag, without a digest. */
  reference: string
  credentials?: RegistryCredentials
}

export interface ImportedImage {
  /**
   * `sha256:…` of the manifest or the list that the reference names: `NAME@DIGEST` always names the same image. For a docker archive that of
   * its configuration.
   */
  digest: string
  /** Bytes of its layers, uncompressed, shared ones included. */
  sizeBytes: number
  config: ImageDefaults
}

/** What an image says about commands in it, and of itself. All of it is bounded and well-formed text. */
export interface ImageDefaults extends ImageFacts {
  env: Record<string, string>
  /** Absolute. */
  cwd?: string
  /** A name or a number, and a group behind a colon; as the guest takes it. */
  user?: string
  entrypoint: readonly string[]
  cmd: readonly string[]
}

/** What is kept for clients and for images on it. */
export interface ImageFacts {
  labels?: Readonly<Record<string, string>>
  /** `80/tcp`. */
  exposedPorts?: readonly string[]
  volumes?: readonly string[]
  stopSignal?: string
  healthcheck?: Healthcheck
  /** Of later builds on it: `SHELL`. */
  shell?: readonly string[]
}

/** As in the OCI configuration of Docker. Durations in milliseconds. */
export interface Healthcheck {
  /** `['NONE']`, `['CMD', …words]` or `['CMD-SHELL', text]`. */
  test: readonly string[]
  intervalMs?: number
  timeoutMs?: number
  startPeriodMs?: number
  startIntervalMs?: number
  retries?: number
}
