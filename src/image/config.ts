import type { ImageFacts } from '../sandbox/index.ts'

/**
 * Facts of an image that sandboxes do not apply: clients read them, `export` writes them. Variables, folder and user are here for clients
 * alone: in force are the defaults of its checkpoint.
 */
export interface ImageConfig extends ImageFacts {
  entrypoint?: readonly string[]
  cmd?: readonly string[]
  envs?: Readonly<Record<string, string>>
  cwd?: string
  user?: string
}
