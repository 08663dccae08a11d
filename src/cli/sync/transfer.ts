import { lstat, mkdir, mkdtemp, rename, rm, rmdir } from 'node:fs/promises'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Atoll, Sandbox } from '../../../sdk/src/index.ts'
import { downloadNames, printfArgument, uploadNames } from '../../../sdk/src/folder-transfer.ts'
import { CliError } from '../exit-codes.ts'
import { onExit } from '../interrupt.ts'
import { note } from '../output.ts'
import type { Plan, Sides } from './plan.ts'
import { bytesOf, draftPrefix } from './snapshot.ts'

/** Names that go into the arguments of one command. */
const namesPerCommand = 500

export interface Place {
  client: Atoll
  sandbox: Sandbox
  user: string | undefined
  /** The folder here, absolute. */
  here: string
  /** The folder in the sandbox. */
  there: string
}

/**
 * Carries out a plan, removals first, since a folder may take the place of a file. Returns what was done: a path whose place a folder has that is
 * not empty stays as it is on both sides.
 */
export async function carryOut(place: Place, plan: Plan, { here, there }: Sides): Promise<Plan> {
  const replacedThere = plan.send.filter((path) => there.has(path) && there.get(path)?.kind !== here.get(path)?.kind)
  const replacedHere = plan.receive.filter((path) => here.has(path) && here.get(path)?.kind !== there.get(path)?.kind)
  await makeRoomThere(place, plan.removeThere.toReversed())
  const keptThere = await makeRoomThere(place, replacedThere)
  await makeRoomHere(place.here, plan.removeHere.toReversed())
  const keptHere = await makeRoomHere(place.here, replacedHere)
  for (const path of keptThere) note(`${path} is not sent: a folder that is not empty is in its place`)
  for (const path of keptHere) note(`${path} is not received: a folder that is not empty is in its place`)
  const send = plan.send.filter((path) => !keptThere.has(path))
  const received = plan.receive.filter((path) => !keptHere.has(path))
  if (send.length > 0) await uploadNames(remoteOf(place), place.here, place.there, send)
  await receive(place, received)
  return { ...plan, send, receive: received }
}

function remoteOf({ client, sandbox, user }: Place) {
  return { client, sandboxPath: `/api/sandboxes/${sandbox.id}`, user }
}

/** Removes each path, which follows its number, and prints the numbers of the folders that stay since they hold something. */
const removeEach = `while [ $# -gt 1 ]; do
  if [ ! -d "$2" ] || [ -L "$2" ]; then rm -f -- "$2" || exit 1
  elif ! rmdir -- "$2" 2>/dev/null; then echo "$1"; fi
  shift 2
done`
/** Numbers and paths of one shell: pairs stay together, and the longest ones fit. */
const wordsPerShell = 20

/** Removes files and folders there, as {@link makeRoomHere} does here. */
async function makeRoomThere({ sandbox, there, user }: Place, paths: readonly string[]): Promise<Set<string>> {
  const kept = new Set<string>()
  for (const names of batches(paths)) {
    const script = `cd -- "$1" || exit 0; each=$2; shift 2; printf '%b\\0' "$@" | xargs -0 -n ${wordsPerShell} sh -c "$each" sh`
    const words = names.flatMap((path, number) => [String(number), printfArgument(path)])
    const { exitCode, stdout, stderr } = await sandbox.run('sh', {
      args: ['-c', script, 'sh', there, removeEach, ...words],
      user,
    })
    if (exitCode !== 0) throw new CliError(`files of ${sandbox.id}:${there} cannot be removed: ${stderr.trim()}`)
    const staying = new Set(stdout.split('\n'))
    for (const [number, path] of names.entries()) if (staying.has(String(number))) kept.add(path)
  }
  return kept
}

/**
 * Removes files and folders here that the sandbox has no more or has another kind of. Returns the folders that stay since they hold something: what
 * a sandbox never had, such as what the rules leave out, does not go because it says so.
 */
export async function makeRoomHere(root: string, paths: readonly string[]): Promise<Set<string>> {
  const kept = new Set<string>()
  for (const path of paths) {
    if (!(await isBelow(root, path))) continue
    const place = bytesOf(root, path)
    const found = await lstat(place).catch(() => undefined)
    if (found?.isDirectory() !== true) {
      await rm(place, { force: true })
      continue
    }
    await rmdir(place).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOTEMPTY') kept.add(path)
      else if (error.code !== 'ENOENT') throw error
    })
  }
  return kept
}

/**
 * Receives into an empty folder first. What the sandbox sends is hostile: of it, only what was asked for is moved to its place, and only where no
 * link leads elsewhere.
 */
async function receive(place: Place, paths: readonly string[]): Promise<void> {
  if (paths.length === 0) return
  const draft = await mkdtemp(join(place.here, draftPrefix))
  const forget = onExit(() => rmSync(draft, { recursive: true, force: true }))
  try {
    for (const names of batches(paths)) {
      await downloadNames(remoteOf(place), place.there, draft, names)
      for (const path of names) await settle(draft, place.here, path)
    }
  } finally {
    forget()
    await rm(draft, { recursive: true, force: true })
  }
}

async function settle(draft: string, root: string, path: string): Promise<void> {
  // The sandbox may have sent less, such as nothing of a file that went away.
  if (!(await isBelow(draft, path))) return
  // The folder may have been removed here while the file was changed there.
  if (!(await isBelow(root, path, (folder) => mkdir(folder)))) {
    return note(`${path} is not received: a file or link is in the place of its folder`)
  }
  const found = await lstat(bytesOf(draft, path)).catch(() => undefined)
  if (found?.isDirectory()) return void (await mkdir(bytesOf(root, path), { recursive: true }))
  if (found?.isFile() || found?.isSymbolicLink()) await rename(bytesOf(draft, path), bytesOf(root, path))
}

/** Whether all that leads to the path below the root is folders. A missing one is made by `make`. */
async function isBelow(root: string, path: string, make?: (folder: Buffer) => Promise<unknown>): Promise<boolean> {
  for (let end = path.indexOf('/'); end !== -1; end = path.indexOf('/', end + 1)) {
    const folder = bytesOf(root, path.slice(0, end))
    const found = await lstat(folder).catch(() => undefined)
    if (found === undefined && make !== undefined) await make(folder)
    else if (found?.isDirectory() !== true) return false
  }
  return true
}

function batches(paths: readonly string[]): string[][] {
  const found: string[][] = []
  for (let at = 0; at < paths.length; at += namesPerCommand) found.push(paths.slice(at, at + namesPerCommand))
  return found
}
