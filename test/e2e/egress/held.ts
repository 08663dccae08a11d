/** Where the text of a value may have got to on the host: each place is searched for it as it is and in base64. */
import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { newestBinaries } from '../../../src/postgres/binaries.ts'
import { HostNames } from '../../../src/runtime/host-names.ts'
import { filesWith } from '../sandbox-insides.ts'
import type { AtollServer } from '../server.ts'

const run = promisify(execFile)
const textBytesMax = 1024 ** 3

/** Those of the texts that a folder's files hold, but for the pool, which `heldOnDisk` searches as what it is. */
export async function heldInFolder(folder: string, texts: readonly string[]): Promise<string[]> {
  const held: string[] = []
  for (const text of texts) {
    const forms = formsOf(text).flatMap((form) => ['-e', form])
    if ((await filesWith('--exclude=pool.img', ...forms, folder)) !== '') held.push(text)
  }
  return held
}

/** Those that the database holds. */
export async function heldInDatabase(server: AtollServer, texts: readonly string[]): Promise<string[]> {
  const { folder } = await newestBinaries()
  const { databaseDir } = new HostNames(server.dataDir)
  const address = `--dbname=postgres:///atoll?host=${databaseDir}&user=atoll`
  const { stdout } = await run(`${folder}/pg_dump`, [address], { maxBuffer: textBytesMax })
  return among(stdout, texts)
}

/** Those that a backup holds, whose dump of the database is compressed. */
export async function heldInBackup(folder: string, texts: readonly string[]): Promise<string[]> {
  const { folder: tools } = await newestBinaries()
  const held = new Set(await heldInFolder(folder, texts))
  for (const name of await readdir(folder, { recursive: true })) {
    const file = `${folder}/${name}`
    const start = await readFile(file).catch(() => Buffer.alloc(0))
    if (start.subarray(0, 5).toString('latin1') !== 'PGDMP') continue
    const { stdout } = await run(`${tools}/pg_restore`, ['--file=-', file], { maxBuffer: textBytesMax })
    for (const text of among(stdout, texts)) held.add(text)
  }
  return texts.filter((text) => held.has(text))
}

export function among(said: string, texts: readonly string[]): string[] {
  return texts.filter((text) => formsOf(text).some((form) => said.includes(form)))
}

/** Base64 without its end, which depends on what follows. */
function formsOf(text: string): string[] {
  return [text, Buffer.from(text).toString('base64').replace(/=+$/, '').slice(0, -1)]
}
