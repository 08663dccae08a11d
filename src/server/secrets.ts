import { randomBytes } from 'node:crypto'
import { link, open, readFile, unlink } from 'node:fs/promises'
import { join } from 'node:path'

const secretBytes = 32

/**
 * The secret with which URLs are signed: made once, kept in the data directory with mode 0600, so that a signed URL
 * survives a restart.
 */
export async function signingSecret(dataDir: string): Promise<string> {
  const path = join(dataDir, 'signing-secret')
  try {
    return (await readFile(path, 'utf8')).trim()
  } catch (error) {
    if (!isCode(error, 'ENOENT')) throw error
  }
  // Written whole under another name, synced, then linked: a crash leaves no empty secret, and a second writer loses.
  const draft = `${path}.${process.pid}`
  const file = await open(draft, 'w', 0o600)
  try {
    await file.writeFile(`${randomBytes(secretBytes).toString('hex')}\n`)
    await file.sync()
  } finally {
    await file.close()
  }
  try {
    await link(draft, path)
  } catch (error) {
    if (!isCode(error, 'EEXIST')) throw error
  } finally {
    await unlink(draft)
  }
  return (await readFile(path, 'utf8')).trim()
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}
