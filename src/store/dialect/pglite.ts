import { existsSync } from 'node:fs'
import { cp, mkdir, readFile, realpath, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Backend } from './index.ts'
import { pgliteDialect } from './pglite-dialect.ts'
import { PgliteThread } from './pglite-thread.ts'

export interface PgliteOptions {
  /** What it throws keeps a new database from being made. */
  beforeMaking: () => void
  /** Hears that the database has ended by itself. */
  died: (error: Error) => void
}

/**
 * PostgreSQL compiled to WebAssembly, in a thread of this process, with one connection.
 *
 * Every write is in the kernel's hands when its promise resolves: an end of this process, however sudden, loses nothing.
 * A power failure may, because PGlite does not wait for the disk; who must survive that uses a server.
 *
 * A new database is a copy of the empty one that setup has put into `imageDir` for this version of PGlite, if it has.
 */
export async function pgliteBackend(
  dataDir: string,
  imageDir: string | undefined,
  { beforeMaking, died }: PgliteOptions,
): Promise<Backend> {
  const folder = join(dataDir, 'db')
  if (!existsSync(join(folder, 'PG_VERSION'))) {
    beforeMaking()
    await initialise(folder, imageDir)
  }
  const thread = await PgliteThread.open(folder, { died })
  return {
    dialect: pgliteDialect(thread),
    unlimited: () => pgliteDialect(thread),
    check: () => thread.check(),
    stop: () => thread.close(),
  }
}

/** Under another name first, so that a process that dies meanwhile leaves nothing that looks like a database. */
async function initialise(folder: string, imageDir: string | undefined): Promise<void> {
  const unfinished = `${folder}.unfinished`
  await rm(unfinished, { recursive: true, force: true })
  await mkdir(unfinished, { recursive: true, mode: 0o700 })
  const prepared = imageDir === undefined ? undefined : await preparedDatabase(imageDir)
  if (prepared !== undefined) {
    await cp(prepared, unfinished, { recursive: true })
  } else {
    const made = await PgliteThread.open(unfinished)
    await made.close()
  }
  await rename(unfinished, folder)
}

/** Folder of the empty database of an image folder, if it is one of this version of PGlite. */
async function preparedDatabase(imageDir: string): Promise<string | undefined> {
  const image = await realpath(join(imageDir, 'database')).catch(() => '')
  const recipe = await readFile(join(image, 'recipe'), 'utf8').catch(() => '')
  return recipe.trim() === `pglite ${await pgliteVersion()}` ? join(image, 'db') : undefined
}

async function pgliteVersion(): Promise<string> {
  const file = new URL('../package.json', import.meta.resolve('@electric-sql/pglite'))
  return (JSON.parse(await readFile(file, 'utf8')) as { version: string }).version
}
