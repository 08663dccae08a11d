import { posix } from 'node:path'
import { isServiceError, ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import type { Mounted, StepMount as SandboxMount } from '../../sandbox/index.ts'
import { type CopyFrom, unpackHeredocs, unpack, withFilesOf } from '../copy/copy.ts'
import { pathOf } from '../copy/sandbox-tree.ts'
import { type CopyEntry, findSource } from '../copy/sources.ts'
import { failed, type StepMount } from '../dockerfile/index.ts'
import type { BuildSandbox } from './sandbox.ts'
import type { Origin } from './stage.ts'

/** What the mounts of a build read. */
export interface MountSources {
  context: CopyFrom | undefined
  /** The stage or image of a `from`. */
  originOf: (from: string) => Promise<Origin>
  /** Throws `build_failed` when a required secret is not there. */
  secret: (id: string, isRequired: boolean) => Buffer | undefined
}

/** Where parts of a bind mount that is a file are kept meanwhile. */
const hiddenFolder = '/.bind'

/** The mounts of one `RUN`, which are detached in reverse order at the end of its scope. */
export class RunMounts implements AsyncDisposable {
  /** Of secrets that are variables. */
  readonly envs: Record<string, string> = {}
  readonly #stack = new AsyncDisposableStack()
  readonly #mounted: Mounted[] = []
  readonly #sandbox: BuildSandbox
  readonly #sources: MountSources
  readonly #line: number

  constructor(sandbox: BuildSandbox, sources: MountSources, line: number) {
    this.#sandbox = sandbox
    this.#sources = sources
    this.#line = line
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync()
  }

  async add(mount: StepMount): Promise<void> {
    switch (mount.type) {
      case 'tmpfs': {
        const { type, target, sizeBytes } = mount
        return await this.#attach({ type, target, ...defined({ sizeBytes }) })
      }
      case 'cache':
        return await this.#addCache(mount)
      case 'bind':
        return await this.#addBind(mount)
      case 'secret': {
        const { id, target, env, required, mode, uid, gid } = mount
        const content = this.#sources.secret(id, required)
        if (content === undefined) return
        if (env !== undefined) this.envs[env] = content.toString()
        if (target !== undefined) await this.#attach({ type: 'secret', target, content, mode, uid, gid })
      }
    }
  }

  /** A program in memory, below a folder of its own: nobody may run what is mounted as a secret. */
  async addProgram(path: string, content: string): Promise<void> {
    const target = posix.dirname(path)
    await this.#attach({ type: 'tmpfs', target })
    await unpackHeredocs(this.#sandbox, [{ name: posix.basename(path), content }], { target, mode: '755' })
  }

  /** Adds to the failure of a step that something mounted has no space left. */
  async explain(error: unknown): Promise<unknown> {
    if (!isServiceError(error, 'build_failed')) return error
    for (const mounted of this.#mounted)
      if (await mounted.isFull())
        return new ServiceError('build_failed', `${error.message} (a cache or mount of the step is full)`, {
          cause: error,
          details: error.details,
        })
    return error
  }

  async #addCache(mount: Extract<StepMount, { type: 'cache' }>): Promise<void> {
    const { target, id, readOnly, sharing, from, source, mode, uid, gid } = mount
    const { scope, files, id: sandboxId } = this.#sandbox
    const key = from === undefined ? id : `${id} ${from} ${source}`
    const owner = { mode, uid, gid }
    if (from === undefined) return await this.#attach({ type: 'cache', key, target, readOnly, sharing, ...owner })
    await this.#attach({ type: 'cache', key, target, readOnly: false, sharing, ...owner })
    const isNew = (await files.list(scope.orgId, sandboxId, target, { user: 'root' })).length === 0
    if (!isNew) return
    await this.#withFiles(from, async (copied) =>
      this.#fill(target, copied, await findSource(copied.tree, source, this.#line)),
    )
  }

  async #addBind({ target, from, source, writable }: Extract<StepMount, { type: 'bind' }>): Promise<void> {
    await this.#withFiles(from, async (files) => {
      const entry = await findSource(files.tree, source, this.#line)
      const isFolder = entry.type === 'directory'
      const folder = isFolder ? target : `${hiddenFolder}-${this.#mounted.length}`
      const { scope, id } = this.#sandbox
      const scratch = await scope.context.sandboxes.mounts.attach(scope.orgId, id, { type: 'scratch', target: folder })
      this.#keep(scratch)
      await this.#fill(folder, files, entry)
      if (!writable) await scratch.setReadOnly()
      if (!isFolder) this.#keep(await scratch.show(pathOf(entry.name), target, { readOnly: !writable }))
    })
  }

  /** Copies the contents of a folder, or a file under its name. */
  async #fill(target: string, files: CopyFrom, entry: CopyEntry): Promise<void> {
    await unpack(this.#sandbox, await files.pack([entry], new Set()), { target })
  }

  async #withFiles<Result>(from: string | undefined, work: (from: CopyFrom) => Promise<Result>): Promise<Result> {
    const { context, originOf } = this.#sources
    if (from !== undefined) return await withFilesOf(this.#sandbox, await originOf(from), work)
    if (context !== undefined) return await work(context)
    throw failed(this.#line, 'the build has no context to mount')
  }

  async #attach(mount: Exclude<SandboxMount, { type: 'scratch' }>): Promise<void> {
    const { scope, id } = this.#sandbox
    this.#keep(await scope.context.sandboxes.mounts.attach(scope.orgId, id, mount, scope.signal))
  }

  #keep<Kind extends Mounted>(mounted: Kind): Kind {
    this.#mounted.push(mounted)
    return this.#stack.use(mounted)
  }
}
