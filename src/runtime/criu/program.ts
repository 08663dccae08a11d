import { access, constants, readFile, realpath, rename, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { commandEnvironment } from '../command.ts'
import { bootId } from '../process.ts'
import { criuSelfTest, unfitForLazyPages } from '../doctor/criu.ts'
import type { LazyPagesTest } from '../doctor/criu-trial.ts'

/** Shared by all servers of this host, and emptied by a reboot. */
const verdictFile = '/run/atoll-criu.json'

interface Verdict {
  /** Of CRIU, of runc, and of the boot. */
  identity: string
  lazyPages: LazyPagesTest
}

export type CriuProgram = { path: string; lazyPages: LazyPagesTest } | { path: undefined; reason: string }

/**
 * The CRIU of an image folder, if it can do its work on this kernel: by itself and through this
 * machine's runc it has dumped and restored real processes once since the machine was booted. Never throws.
 */
export async function findCriu(imageDir: string): Promise<CriuProgram> {
  const path = await realpath(`${imageDir}/criu/criu`).catch(() => undefined)
  if (path === undefined) return { path: undefined, reason: `CRIU is not installed in ${imageDir}: run npm run setup` }
  const identity = await identityOf(path)
  const known = await verdictOn(identity)
  if (known !== undefined) return { path, lazyPages: known }
  const { ok, reason = '', lazyPages } = await criuSelfTest(path, imageDir)
  if (!ok || lazyPages === undefined)
    return { path: undefined, reason: `CRIU does not work on this machine: ${reason}` }
  // Only success is remembered: what failed may be mended without a reboot.
  if (lazyPages.ok || lazyPages.reason === unfitForLazyPages) await remember({ identity, lazyPages })
  return { path, lazyPages }
}

async function verdictOn(identity: string): Promise<LazyPagesTest | undefined> {
  try {
    const verdict = JSON.parse(await readFile(verdictFile, 'utf8')) as Verdict
    return verdict.identity === identity ? verdict.lazyPages : undefined
  } catch {
    return undefined
  }
}

async function remember(verdict: Verdict): Promise<void> {
  const draft = `${verdictFile}.${process.pid}`
  await writeFile(draft, JSON.stringify(verdict), { mode: 0o600 })
    .then(() => rename(draft, verdictFile))
    .catch(() => undefined)
}

async function identityOf(path: string): Promise<string> {
  return JSON.stringify([await fileOf(path), await fileOf(await pathOf('runc')), bootId()])
}

async function fileOf(path: string | undefined) {
  if (path === undefined) return undefined
  const { dev, ino, size, mtimeMs } = await stat(path)
  return { path, dev, ino, size, mtimeMs }
}

/** The program that a command starts. */
async function pathOf(program: string): Promise<string | undefined> {
  for (const folder of (commandEnvironment()['PATH'] ?? '').split(':')) {
    const path = join(folder, program)
    const isProgram = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    )
    if (isProgram) return await realpath(path)
  }
  return undefined
}
