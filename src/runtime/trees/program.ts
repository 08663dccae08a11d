/**
 * Runs inside of a confined container, on trees that are mounted read-only at `/from` and `/to`, and writes what it finds to `/out`. It
 * imports nothing of the project, since it is mounted alone. What it reads is hostile, and so it is trusted with nothing: the server
 * checks what it has written.
 *
 * Git never opens a file of a tree. It has a repository of its own in `/out` and two kinds of input: contents of files (`fast-import`), on
 * which no filter, hook, attribute or monitor of a tree has a say, and copies of the `.gitignore` files that are plain and short.
 *
 * This differs from what git in the folder itself would say: whether git tracks a file is not known, so one that `.gitignore` names is left
 * out although it may have been committed; `.git/info/exclude` and attributes do not count; files of nested repositories are files of the
 * folder; long files are binary.
 */
import { execFileSync, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import {
  closeSync,
  constants,
  createReadStream,
  createWriteStream,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  readSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'

interface Request {
  what: 'compare' | 'patch' | 'read'
  folder: string
  filesMax: number
  bytesMax: number
  /** Nanoseconds since 1970. Files of equal times that changed later than that may differ. Absent: they never do. */
  sharedUntilNs?: string
}

interface Entry {
  /** Git's. */
  mode: string
  permissions: number
  size: number
  ctime: bigint
  mtime: bigint
  inode: bigint
}

type Tree = Map<string, Entry>
/** Absent: the disk has no such folder. */
type Root = string | undefined

/** Names of a tree, folders included. */
const entriesMax = 400_000
/** Git takes no longer path. Longer ones, which a process gets at step by step, are left out. */
const pathBytesMax = 3500
/** Longer files are binary for git: they are compared by a hash of their content. */
const textBytesMax = 8 * 1024 * 1024
/** Likewise for files of more lines, whose comparison takes a hundred bytes of memory for each. */
const linesMax = 500_000
/** Of all longer files together: seconds. */
const hashedBytesMax = 512 * 1024 * 1024
/** A longer `.gitignore` does not count, and none does past the sum. */
const ignoreBytesMax = 1024 * 1024
const ignoreBytesSum = 16 * 1024 * 1024
let hashedBytes = 0
const linksMax = 40
const renamesMax = 1000
const repository = '/out/git'
const newline = 10
/** Latin-1 stands for bytes, so that every name survives. */
const bytes = (name: string) => Buffer.from(name, 'latin1')

class TooLarge extends Error {}

const git = (args: readonly string[], input?: Buffer) =>
  execFileSync('/usr/bin/git', ['--git-dir', repository, ...args], {
    ...(input === undefined ? {} : { input }),
    cwd: '/out/empty',
    env: environment,
    maxBuffer: 1 << 30,
    stdio: ['pipe', 'pipe', 'inherit'],
  })

const environment = {
  PATH: '/usr/bin:/bin',
  HOME: '/out/empty',
  LC_ALL: 'C',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_ATTR_NOSYSTEM: '1',
  GIT_OPTIONAL_LOCKS: '0',
  GIT_TERMINAL_PROMPT: '0',
}

async function main(request: Request): Promise<void> {
  const to = folderIn('/to', request.folder)
  if (request.what === 'read') return readFiles(to, request)
  const from = folderIn('/from', request.folder)
  const [before, after] = [listing(from), listing(to)]
  const changed = changedNames({ from, before, to, after }, request.sharedUntilNs)
  mkdirSync('/out/empty')
  makeRepository()
  const ignored = new Set([...ignoredIn(from, before, changed, 'from'), ...ignoredIn(to, after, changed, 'to')])
  const names = changed.filter((name) => !ignored.has(name))
  const commits = new Commits()
  await commits.add('from', from, before, names)
  await commits.add('to', to, after, names)
  await commits.end()
  const common = ['diff-tree', '-r', '-M', `-l${renamesMax}`, '--no-color', '--no-ext-diff', '--no-textconv']
  const trees = ['refs/heads/from', 'refs/heads/to']
  if (request.what === 'compare') writeFileSync('/out/result', git([...common, '-z', '--raw', '--numstat', ...trees]))
  else
    await writePatch(
      [...common, '-p', '--full-index', '--src-prefix=a/', '--dst-prefix=b/', ...trees],
      request.bytesMax,
    )
}

/** Resolves links as the sandbox would, so that none leads out of the tree. Undefined: no such folder. */
function folderIn(root: string, folder: string): Root {
  let done: string[] = []
  const left = Buffer.from(folder).toString('latin1').split('/')
  for (let links = 0; left.length > 0;) {
    const part = left.shift()!
    if (part === '' || part === '.') continue
    if (part === '..') {
      done.pop()
      continue
    }
    const path = `${root}/${[...done, part].join('/')}`
    const stats = statsOf(path)
    if (stats === undefined) return undefined
    if (stats.isSymbolicLink()) {
      if ((links += 1) > linksMax) return undefined
      const target = readlinkSync(bytes(path), 'latin1')
      if (target.startsWith('/')) done = []
      left.unshift(...target.split('/'))
    } else if (stats.isDirectory()) done.push(part)
    else return undefined
  }
  return [root, ...done].join('/')
}

/** Undefined for what is not there or has too long a path. */
function statsOf(path: string) {
  try {
    return lstatSync(bytes(path), { bigint: true, throwIfNoEntry: false })
  } catch (error) {
    if ((error as { code?: string }).code === 'ENAMETOOLONG') return undefined
    throw error
  }
}

/** Files and links by their path; nothing that is git's own. */
function listing(root: Root): Tree {
  const found: Tree = new Map()
  const folders = root === undefined ? [] : ['']
  let entries = 0
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    for (const name of namesIn(`${root}/${folder}`)) {
      if (name.toLowerCase() === '.git') continue
      if ((entries += 1) > entriesMax) throw new TooLarge(`the folder has more than ${entriesMax} entries`)
      const path = `${folder}${name}`
      if (path.length > pathBytesMax) continue
      const stats = statsOf(`${root}/${path}`)
      if (stats === undefined) continue
      if (stats.isDirectory()) folders.push(`${path}/`)
      else if (stats.isSymbolicLink() || stats.isFile()) {
        const { ctimeNs: ctime, mtimeNs: mtime, ino: inode } = stats
        const [size, permissions] = [Number(stats.size), Number(stats.mode & 0o777n)]
        const mode = stats.isFile() ? (permissions & 0o100 ? '100755' : '100644') : '120000'
        found.set(path, { mode, permissions, size, ctime, mtime, inode })
      }
    }
  }
  return found
}

function namesIn(folder: string): string[] {
  return readdirSync(bytes(folder), 'latin1')
}

/**
 * What differs. Nobody in a sandbox can set when an inode was changed last, so a file of equal times is the same, unless two sandboxes may have
 * written it at the same time: then, and for other times, the contents decide.
 */
function changedNames(
  { from, before, to, after }: { from: Root; before: Tree; to: Root; after: Tree },
  sharedUntilNs: string | undefined,
): string[] {
  const until = sharedUntilNs === undefined ? undefined : BigInt(sharedUntilNs)
  const isSame = (name: string, old: Entry, now: Entry) => {
    if (old.mode !== now.mode || old.size !== now.size) return false
    const isOfOneTime = old.ctime === now.ctime && old.mtime === now.mtime
    if (isOfOneTime && (until === undefined || now.ctime < until)) return true
    return now.size <= textBytesMax && contentOf(`${from}/${name}`, old).equals(contentOf(`${to}/${name}`, now))
  }
  const names: string[] = []
  for (const [name, now] of after) {
    const old = before.get(name)
    if (old === undefined || !isSame(name, old, now)) names.push(name)
  }
  for (const name of before.keys()) if (!after.has(name)) names.push(name)
  return names
}

function makeRepository(): void {
  for (const folder of ['', '/objects', '/objects/pack', '/refs']) mkdirSync(`${repository}${folder}`)
  writeFileSync(`${repository}/HEAD`, 'ref: refs/heads/none\n')
  const config = [
    '[core]',
    'repositoryformatversion = 0',
    'bare = false',
    'fsmonitor = false',
    'hooksPath = /dev/null',
    'attributesFile = /dev/null',
    'excludesFile = /dev/null',
    'autocrlf = false',
    'protectHFS = false',
    'protectNTFS = false',
    'quotePath = true',
    'logAllRefUpdates = false',
    'compression = 1',
    '[fastimport]',
    'unpackLimit = 0',
    '[gc]',
    'auto = 0',
  ]
  writeFileSync(`${repository}/config`, `${config.join('\n')}\n`)
}

/** Names that the `.gitignore` files of a tree leave out. Git sees copies of these files alone, so `what` must be no name of a tree. */
function ignoredIn(root: Root, tree: Tree, names: readonly string[], what: string): string[] {
  const workTree = `/out/ignore-${what}`
  if (!copyIgnoreFiles(root, tree, names, workTree)) return []
  // A name with a colon at its beginning would be taken for a pattern.
  const input = bytes(names.map((name) => `./${name}\0`).join(''))
  try {
    const said = git(['--work-tree', workTree, 'check-ignore', '--no-index', '-z', '--stdin'], input)
    return said
      .toString('latin1')
      .split('\0')
      .map((name) => name.slice('./'.length))
  } catch (error) {
    // 1: none is ignored.
    if ((error as { status?: number }).status === 1) return []
    throw error
  }
}

/** Returns whether there are any for these names. */
function copyIgnoreFiles(root: Root, tree: Tree, names: readonly string[], target: string): boolean {
  const folders = new Set(names.length === 0 ? [] : [''])
  for (const name of names)
    for (let at = name.lastIndexOf('/'); at !== -1; at = name.lastIndexOf('/', at - 1)) {
      const folder = name.slice(0, at + 1)
      if (folders.has(folder)) break
      folders.add(folder)
    }
  let sum = 0
  for (const folder of folders) {
    const name = `${folder}.gitignore`
    const entry = tree.get(name)
    if (entry === undefined || entry.mode === '120000' || entry.size > ignoreBytesMax) continue
    if ((sum += entry.size) > ignoreBytesSum) break
    mkdirSync(bytes(`${target}/${folder}`), { recursive: true })
    writeFileSync(bytes(`${target}/${name}`), contentOf(`${root}/${name}`, entry))
  }
  return sum > 0
}

/** Writes trees of files into the repository, each as a commit of the branch of its name: one program for all (git-fast-import(1)). */
class Commits {
  readonly #git = spawn('/usr/bin/git', ['--git-dir', repository, 'fast-import', '--quiet', '--depth=0'], {
    cwd: '/out/empty',
    env: environment,
    stdio: ['pipe', 'ignore', 'inherit'],
  })
  readonly #closed = once(this.#git, 'close')
  readonly #stored = new Set<string>()

  constructor() {
    // Its status says so.
    this.#git.stdin.on('error', () => undefined)
  }

  async add(branch: string, root: Root, tree: Tree, names: readonly string[]): Promise<void> {
    const lines: string[] = []
    for (const name of names) {
      const entry = tree.get(name)
      if (entry === undefined) continue
      const id = await this.#store(await blobOf(`${root}/${name}`, entry))
      lines.push(`M ${entry.mode} ${id} "${name.replaceAll(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"\n`)
    }
    await this.#write(bytes(`commit refs/heads/${branch}\ncommitter none <none> 0 +0000\ndata 0\n`))
    await this.#write(bytes(lines.join('')))
  }

  async end(): Promise<void> {
    this.#git.stdin.end()
    const [status] = (await this.#closed) as [number | null]
    if (status !== 0) throw new Error(`git ended with ${status}`)
  }

  async #store(content: Buffer): Promise<string> {
    const id = createHash('sha1').update(`blob ${content.length}\0`).update(content).digest('hex')
    if (this.#stored.has(id)) return id
    this.#stored.add(id)
    await this.#write(bytes(`blob\ndata ${content.length}\n`))
    await this.#write(content)
    return id
  }

  async #write(part: Buffer): Promise<void> {
    const { stdin } = this.#git
    if (stdin.write(part) || stdin.destroyed) return
    await Promise.race([once(stdin, 'drain'), this.#closed])
  }
}

async function blobOf(path: string, entry: Entry): Promise<Buffer> {
  const content = entry.size > textBytesMax ? undefined : contentOf(path, entry)
  if (content !== undefined && hasFewLines(content)) return content
  return Buffer.from(`\0${await identityOf(path, entry)}`)
}

function hasFewLines(content: Buffer): boolean {
  let lines = 0
  for (let at = content.indexOf(newline); at !== -1; at = content.indexOf(newline, at + 1)) lines += 1
  return lines <= linesMax
}

/** Of a file, or where a link leads. */
function contentOf(path: string, { mode, size }: Entry): Buffer {
  if (mode === '120000') return readlinkSync(bytes(path), 'buffer')
  const file = openSync(bytes(path), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  try {
    const content = Buffer.alloc(size)
    let length = 0
    for (let read = 1; read > 0 && length < size; length += read)
      read = readSync(file, content, length, size - length, length)
    return content.subarray(0, length)
  } finally {
    closeSync(file)
  }
}

/** What is too long to be read, a sparse file of terabytes for instance, counts as changed: something about it has. */
async function identityOf(path: string, { size, ctime, inode }: Entry): Promise<string> {
  hashedBytes += size
  return hashedBytes > hashedBytesMax ? `${size} ${ctime} ${inode}` : await hashOf(path)
}

async function hashOf(path: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const part of createReadStream(bytes(path), { flags: 'r' })) hash.update(part as Buffer)
  return hash.digest('hex')
}

/** Ends it at `bytesMax`, with a line that says so. */
async function writePatch(args: readonly string[], bytesMax: number): Promise<void> {
  const child = spawn('/usr/bin/git', ['--git-dir', repository, ...args], {
    cwd: '/out/empty',
    env: environment,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const closed = once(child, 'close')
  const out = createWriteStream('/out/result')
  let left = bytesMax
  for await (const part of child.stdout as AsyncIterable<Buffer>) {
    if (!out.write(part.subarray(0, left))) await once(out, 'drain')
    left -= part.length
    if (left >= 0) continue
    out.write(`\n\\ The patch ends here: it is longer than ${bytesMax} bytes.\n`)
    child.kill()
    break
  }
  out.end()
  await once(out, 'finish')
  const [status] = (await closed) as [number | null]
  if (left >= 0 && status !== 0) throw new Error(`git ended with ${status}`)
}

/** One after the other: the length of a JSON text in 4 bytes, the text with path, mode and size, the content. */
function readFiles(root: Root, { filesMax, bytesMax }: Request): void {
  const out = openSync('/out/result', 'w')
  let [files, total] = [0, 0]
  for (const [path, entry] of listing(root)) {
    if (entry.mode === '120000') continue
    files += 1
    total += entry.size
    if (files > filesMax || total > bytesMax)
      throw new TooLarge(`the folder holds more than ${filesMax} files or ${bytesMax} bytes`)
    const content = contentOf(`${root}/${path}`, entry)
    const about = Buffer.from(
      JSON.stringify({ path: bytes(path).toString('base64'), mode: entry.permissions, size: content.length }),
    )
    const length = Buffer.alloc(4)
    length.writeUInt32BE(about.length)
    for (const part of [length, about, content]) for (let at = 0; at < part.length;) at += writeSync(out, part, at)
  }
  closeSync(out)
}

try {
  await main(JSON.parse(process.argv[2] ?? '') as Request)
  // A result that is read slowly keeps what lies beside it in memory.
  for (const name of readdirSync('/out')) if (name !== 'result') rmSync(`/out/${name}`, { recursive: true })
} catch (error) {
  writeFileSync('/out/fault', error instanceof TooLarge ? `too_large ${error.message}` : `failed ${String(error)}`)
  process.exitCode = 1
}
