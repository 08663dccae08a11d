import { posix } from 'node:path'
import type { ServiceError } from '../../errors.ts'
import { TimeSlice } from '../../lib/async/time-slice.ts'
import { latin1OfPath } from '../../lib/byte-path.ts'
import { ExcludePatterns, type Place } from '../../protocol/exclude-patterns.ts'
import { Glob, textOfName } from '../../protocol/glob.ts'
import { type CopyOperation, failed, refused } from '../dockerfile/index.ts'
import type { FileTree, TreeEntry } from '../file-tree.ts'

/** An entry that is copied, with what is below it. Paths and names as in a `FileTree`. */
export interface CopyEntry {
  /** Without links on its way. */
  path: string
  type: TreeEntry['type']
  /** Below the target; empty for a folder whose contents go there. */
  name: string
}

export interface CopySelection {
  entries: CopyEntry[]
  /** Paths in folders that `--exclude` leaves out. */
  skip: Set<string>
}

type Request = Pick<CopyOperation, 'sources' | 'excludes' | 'keepsParents' | 'line'>

/** Entries of one instruction, and entries that are looked at for `--exclude`. */
const entriesMax = 20_000
const lookedAtMax = 500_000
/** Of all comparisons of one instruction: some seconds, where a hostile pattern meets a large folder. */
const stepsMax = 200_000_000
/** Of the patterns of `--exclude`, all of which one name is compared with at once. */
const excludeCharsMax = 16 * 1024
/** As the kernel has it for one path. */
const linksMax = 40

/** A file or folder by its path, which is followed within the tree. Throws `build_failed`. */
export async function findSource(tree: FileTree, path: string, line: number): Promise<CopyEntry> {
  const pattern = path.replaceAll(/[\\*?[]/g, '\\$&')
  const { entries } = await selectSources(tree, { sources: [{ pattern }], excludes: [], keepsParents: false, line })
  return entries[0]!
}

/**
 * What the sources of `COPY` or `ADD` mean in a tree: Go's `filepath.Match` for each name of a pattern. A source that is a link, or that has a
 * link on its way, is followed within the tree; a wildcard finds no link to a folder on the way. Throws `build_failed` for a source without a match, `invalid_request`
 * for a malformed pattern.
 */
export async function selectSources(tree: FileTree, request: Request): Promise<CopySelection> {
  const sources = new Sources(tree, request)
  return await sources.select()
}

class Sources {
  readonly #tree: FileTree
  readonly #request: Request
  readonly #excludes: ExcludePatterns
  readonly #slice = new TimeSlice()
  #lookedAt = 0
  #steps = 0

  constructor(tree: FileTree, request: Request) {
    this.#tree = tree
    this.#request = request
    const chars = request.excludes.reduce((sum, { length }) => sum + length, 0)
    if (chars > excludeCharsMax) throw refused(request.line, `--exclude has more than ${excludeCharsMax} characters`)
    this.#excludes = this.#parsed(() => new ExcludePatterns(request.excludes))
  }

  async select(): Promise<CopySelection> {
    const { sources, keepsParents } = this.#request
    const selection: CopySelection = { entries: [], skip: new Set() }
    const patterns = sources.flatMap((source) => ('pattern' in source ? [source.pattern] : []))
    const unmatched: string[] = []
    for (const pattern of patterns) {
      const found = keepsParents ? await this.#findWithParents(pattern) : await this.#find(pattern)
      if (found.length === 0) unmatched.push(pattern)
      for (const entry of found) {
        const names = entry.name === '' ? [] : entry.name.split('/')
        const place = names.reduce((above, name) => this.#excludes.enter(above, name), this.#excludes.root)
        if (!place.isExcluded) await this.#add(entry, place, selection)
      }
    }
    // A wildcard may match nothing, as in BuildKit: `COPY package.json yarn.lock* ./`. The folder before it must be there.
    const missing = await this.#missingOf(unmatched)
    if (missing !== undefined)
      throw this.#failed(`there is no ${JSON.stringify(missing)} to copy${this.#tree.absence ?? ''}`)
    return selection
  }

  async #missingOf(unmatched: readonly string[]): Promise<string | undefined> {
    for (const pattern of unmatched) {
      const [plain = ''] = pattern.split(/[^/]*[*?[]/, 1)
      if (plain === pattern || (await this.#match('/', plain)).length === 0) return pattern
    }
    return undefined
  }

  async #add(entry: CopyEntry, place: Place, { entries, skip }: CopySelection): Promise<void> {
    if (entries.length >= entriesMax)
      throw this.#failed(`copies more than ${entriesMax} files and folders by wildcards`)
    entries.push(entry)
    if (entry.type === 'directory' && this.#request.excludes.length > 0) await this.#skipBelow(entry.path, place, skip)
  }

  /** Returns whether something of the folder is copied: an excluded one is there for what it holds alone. */
  async #skipBelow(folder: string, place: Place, skip: Set<string>): Promise<boolean> {
    let isKept = false
    for (const child of await this.#list(folder)) {
      const found = this.#excludes.enter(place, nameOf(child.path))
      await this.#pay()
      const isEntered = child.type === 'directory' && (!found.isExcluded || this.#excludes.mayKeepBelow(found))
      const isKeptBelow = isEntered && (await this.#skipBelow(child.path, found, skip))
      if (found.isExcluded && !isKeptBelow) skip.add(child.path)
      else isKept = true
    }
    return isKept
  }

  #parsed<Pattern>(parse: () => Pattern, shown = ''): Pattern {
    try {
      return parse()
    } catch (error) {
      throw refused(this.#request.line, `malformed pattern ${shown}${(error as SyntaxError).message}`)
    }
  }

  async #find(pattern: string): Promise<CopyEntry[]> {
    const matches = await this.#match('/', pattern)
    const found: CopyEntry[] = []
    for (const path of matches) {
      const entry = await this.#follow(path)
      if (entry === undefined) throw this.#failed(`${JSON.stringify(path)} is a link that leads nowhere`)
      found.push({ path: entry.path, type: entry.type, name: entry.type === 'directory' ? '' : nameOf(path) })
    }
    return found
  }

  /** `a/./b` is kept as `b`, `a/b` as `a/b`. Links are copied as links. */
  async #findWithParents(pattern: string): Promise<CopyEntry[]> {
    const [, before = '', after = pattern] = /^(.*?\/)?\.\/(.*)$/.exec(pattern.replace(/^(\.\/)+/, '')) ?? []
    const roots = before === '' ? ['/'] : await this.#match('/', before)
    const found: CopyEntry[] = []
    for (const root of roots) {
      const folder = await this.#follow(root)
      if (folder?.type !== 'directory') continue
      for (const path of await this.#match(folder.path, after, true)) {
        const entry = await this.#tree.find(path)
        if (entry === undefined) continue
        found.push({ path, type: entry.type, name: path.slice(folder.path.length).replace(/^\//, '') })
      }
    }
    return found
  }

  /** The paths that a pattern matches below a folder. Links to folders on the way are followed where the pattern names them. */
  async #match(root: string, pattern: string, allowsDepth = false): Promise<string[]> {
    let found = [root]
    const parts = posix
      .normalize(`/${pattern}`)
      .split('/')
      .slice(1)
      .filter((part) => part !== '')
    for (const [index, part] of parts.entries()) {
      const isLast = index === parts.length - 1
      const name = this.#parsed(() => Glob.ofName(part), `${JSON.stringify(pattern)}: `)
      const { literal } = name
      const next: string[] = []
      for (const folder of found) {
        if (allowsDepth && part === '**') next.push(...(await this.#foldersBelow(folder, isLast)))
        else if (literal === undefined) {
          for (const child of await this.#list(folder)) {
            const before = name.steps
            if (name.matches(textOfName(nameOf(child.path))) && (isLast || child.type === 'directory'))
              next.push(child.path)
            await this.#pay(name.steps - before)
          }
        } else {
          const path = posix.join(folder, latin1OfPath(literal))
          const child = isLast ? await this.#tree.find(path) : await this.#follow(path)
          if (child !== undefined && (isLast || child.type === 'directory')) next.push(child.path)
        }
      }
      found = next
    }
    return [...new Set(found)]
  }

  async #foldersBelow(folder: string, withFiles: boolean): Promise<string[]> {
    const found = withFiles ? [] : [folder]
    for (const child of await this.#list(folder)) {
      if (child.type === 'directory') found.push(...(await this.#foldersBelow(child.path, withFiles)))
      else if (withFiles) found.push(child.path)
    }
    return found
  }

  /** The entry that a path leads to, at its own place. */
  async #follow(path: string): Promise<TreeEntry | undefined> {
    let entry: TreeEntry | undefined
    let at = '/'
    let links = 0
    const rest = path.split('/').filter((name) => name !== '')
    while (rest.length > 0) {
      const name = rest.shift()!
      if (name === '.') continue
      at = posix.join(at, name)
      if (at === '/') {
        entry = undefined
        continue
      }
      entry = await this.#tree.find(at)
      if (entry === undefined) return undefined
      if (entry.type !== 'symlink') continue
      if (++links > linksMax) throw this.#failed(`${JSON.stringify(path)} has too many links on its way`)
      const target = entry.target ?? ''
      rest.unshift(...target.split('/').filter((part) => part !== ''))
      at = target.startsWith('/') ? '/' : posix.dirname(at)
      entry = undefined
    }
    return entry ?? (await this.#tree.find(at))
  }

  async #list(folder: string): Promise<TreeEntry[]> {
    const entries = await this.#tree.list(folder)
    this.#lookedAt += entries.length
    if (this.#lookedAt > lookedAtMax) throw this.#failed(`looks at more than ${lookedAtMax} files`)
    await this.#slice.next()
    return entries
  }

  /** Counts comparisons, those with `--exclude` too, and lets others go on. */
  async #pay(steps = 0): Promise<void> {
    this.#steps += steps
    if (this.#steps + this.#excludes.steps > stepsMax) throw this.#failed('its patterns take too long to compare')
    await this.#slice.next()
  }

  #failed(why: string): ServiceError {
    return failed(this.#request.line, why)
  }
}

function nameOf(path: string): string {
  return posix.basename(path)
}
