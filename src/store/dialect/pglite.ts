import { existsSync } from 'node:fs'
import { cp, mkdir, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { PGlite, types } from '@electric-sql/pglite'
import { PGliteDialect } from 'kysely'
import type { Backend } from './index.ts'
import { maintain } from './pglite-maintenance.ts'

/**
 * PostgreSQL compiled to WebAssembly, in this process, with one connection. Kysely hands that connection to one caller at
 * a time, so transactions do not interleave.
 *
 * Every write is in the kernel's hands when its promise resolves: an end of this process, however sudden, loses nothing.
 * A power failure may, because PGlite does not wait for the disk; who must survive that uses a server.
 *
 * A new database is a copy of the empty one that setup has put into `imageDir` for this version of PGlite, if it has. What
 * `beforeMaking` throws keeps it from being made.
 */
export async function pgliteBackend(
  dataDir: string,
  imageDir: string | undefined,
  beforeMaking: () => void,
): Promise<Backend> {
  const folder = join(dataDir, 'db')
  if (!existsSync(join(folder, 'PG_VERSION'))) {
    beforeMaking()
    await initialise(folder, imageDir)
  }
  const pglite = await PGlite.create(folder, { parsers: { [types.INT8]: Number } })
  return { dialect: new PGliteDialect({ pglite }), check: () => undefined, stop: maintain(pglite) }
}

/** Under another name first, so that a process that dies meanwhile leaves nothing that looks like a database. */
async function initialise(folder: string, imageDir: string | undefined): Promise<void> {
  const unfinished = `${folder}.unfinished`
  await rm(unfinished, { recursive: true, force: true })
  await mkdir(unfinished, { recursive: true, mode: 0o700 })
  const prepared = imageDir === undefined ? undefined : join(imageDir, `database-${await pgliteVersion()}`)
  if (prepared !== undefined && existsSync(prepared)) {
    await cp(prepared, unfinished, { recursive: true })
  } else {
    const pglite = await PGlite.create(unfinished)
    await pglite.close()
  }
  await rename(unfinished, folder)
}

async function pgliteVersion(): Promise<string> {
  const file = new URL('../package.json', import.meta.resolve('@electric-sql/pglite'))
  return (JSON.parse(await readFile(file, 'utf8')) as { version: string }).version
}
