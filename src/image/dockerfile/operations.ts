import type { ImageConfig } from '../config.ts'

/**
 * What a stage of a Dockerfile asks for, with all variables expanded. Pure data: the parser and the evaluation make it, the builder carries
 * it out, and the hash of a layer is made of it. Docs: Dockerfile reference.
 */
export type Operation = RunOperation | CopyOperation | WorkdirOperation

export interface Written {
  /** The first line of the instruction, from 1. */
  line: number
  /** The instruction as written, on one line, for logs. */
  summary: string
}

export interface RunOperation extends Written {
  type: 'run'
  /** The shell and its command, or the words of the exec form. */
  argv: readonly [string, ...string[]]
  /** A heredoc that is the program: a file of this content with mode 0755, whose path is put behind `argv`. */
  script?: string
  /** Of `ENV`, and the arguments of the build that are in scope. */
  envs: Readonly<Record<string, string>>
  /** `HTTP_PROXY` and its like as they were given to the build. No part of a layer's hash, since a proxy changes no content. */
  proxies: Readonly<Record<string, string>>
  cwd: string
  /** `USER` or `USER:GROUP`; default root. */
  user?: string
  mounts: readonly StepMount[]
}

/** `RUN --mount`. Targets are absolute. */
export type StepMount =
  | { type: 'bind'; target: string; from?: string; source: string; writable: boolean }
  | {
      type: 'cache'
      target: string
      /** Default: the target. */
      id: string
      readOnly: boolean
      sharing: 'shared' | 'private' | 'locked'
      /** What a new cache begins with. */
      from?: string
      source: string
      mode: number
      uid: number
      gid: number
    }
  | { type: 'tmpfs'; target: string; sizeBytes?: number }
  | {
      type: 'secret'
      id: string
      /** Absent: a variable alone. */
      target?: string
      env?: string
      required: boolean
      mode: number
      uid: number
      gid: number
    }

export interface CopyOperation extends Written {
  type: 'copy' | 'add'
  /** A stage by name or number, or an image. Absent: the context. */
  from?: string
  sources: readonly CopySource[]
  /** Absolute, with its trailing slash if it has one. */
  target: string
  /** `--chown`: names or numbers, looked up in the image's own files. */
  owner?: string
  /** `--chmod`: octal or symbolic, as written. */
  mode?: string
  excludes: readonly string[]
  /** `--parents`. */
  keepsParents: boolean
  /** `ADD` of a local archive unpacks it; `--unpack=false` and `COPY` do not. */
  unpacks: boolean
}

/** A pattern of Go's `filepath.Match` in the source tree, or a heredoc. */
export type CopySource = { pattern: string } | { name: string; content: string }

export interface WorkdirOperation extends Written {
  type: 'workdir'
  path: string
  /** The folders that are made belong to it. */
  user?: string
}

/** What a stage has come to: what the next instruction begins with, and, at the end, what the image gives its sandboxes. */
export interface StageState {
  envs: Record<string, string>
  /** Arguments that the stage has declared. */
  args: Record<string, string>
  /** Absent: the root folder, and none in the image. */
  cwd?: string
  user?: string
  shell: readonly [string, ...string[]]
  config: ImageConfig
}
