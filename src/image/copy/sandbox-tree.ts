import { ignoreNotFound } from '../../errors.ts'
import { latin1OfPath, pathOfBase64, pathOfBytes } from '../../lib/byte-path.ts'
import { defined } from '../../lib/defined.ts'
import { asRoot, type BuildSandbox } from '../build/sandbox.ts'
import type { FileTree, TreeEntry } from '../file-tree.ts'

/** Entries of a folder that are asked for at a time. */
const atOnce = 16

/** The disk of a sandbox as a tree that `COPY --from` reads. */
export class SandboxTree implements FileTree {
  readonly #sandbox: BuildSandbox

  constructor(sandbox: BuildSandbox) {
    this.#sandbox = sandbox
  }

  async find(path: string): Promise<TreeEntry | undefined> {
    const { scope, id, files } = this.#sandbox
    scope.signal.throwIfAborted()
    const found = await files.inspect(scope.orgId, id, pathOf(path), asRoot).catch(ignoreNotFound)
    if (found === undefined) return undefined
    const { type, mode, target } = found
    return { path, type, mode, ...defined({ target: target === undefined ? undefined : latin1OfPath(target) }) }
  }

  async list(path: string): Promise<TreeEntry[]> {
    const { scope, id, files } = this.#sandbox
    const found = await files.list(scope.orgId, id, pathOf(path), asRoot)
    const entries: TreeEntry[] = []
    for (let at = 0; at < found.length; at += atOnce) {
      const some = found.slice(at, at + atOnce).map((entry) => {
        const full = (entry.pathBase64 === undefined ? undefined : pathOfBase64(entry.pathBase64)) ?? entry.path
        return this.find(latin1OfPath(full))
      })
      for (const entry of await Promise.all(some)) if (entry !== undefined) entries.push(entry)
    }
    return entries
  }
}

/** The path of a tree as the service takes it. */
export function pathOf(path: string): string {
  return pathOfBytes(Buffer.from(path, 'latin1'))
}
