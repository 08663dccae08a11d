/**
 * Facts of an image that sandboxes do not apply: clients read them, `export` writes them. Variables, folder and user are here for clients
 * alone: in force are the defaults of its checkpoint.
 */
export interface ImageConfig {
  entrypoint?: readonly string[]
  cmd?: readonly string[]
  labels?: Readonly<Record<string, string>>
  /** `80/tcp`. */
  exposedPorts?: readonly string[]
  volumes?: readonly string[]
  stopSignal?: string
  healthcheck?: Healthcheck
  /** Of later builds on it: `SHELL`. */
  shell?: readonly string[]
  envs?: Readonly<Record<string, string>>
  cwd?: string
  user?: string
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
