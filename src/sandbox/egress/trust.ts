import { Readable } from 'node:stream'
import { ServiceError, isServiceError } from '../../errors.ts'
import { newId } from '../../lib/id.ts'
import type { Guest } from '../ports/guest.ts'
import { bundlePath, certificatePath } from './environment.ts'

/** Bundles of other distributions than Debian: what is there gets the certificate too. */
const otherBundles = ['/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem', '/etc/ssl/cert.pem']
/** Debian's have some 250 kB. */
const bundleBytesMax = 4 * 1024 * 1024
/** The store of Debian's Java, which its hook makes of all certificates. */
const javaStore = '/etc/ssl/certs/java/cacerts'
const refresh = ['/usr/sbin/update-ca-certificates']
const refreshMs = 60_000

/** Makes the programs of a sandbox trust the authority of its lineage. Harmless when they do. A bundle that is not there is made. */
export async function trust(guest: Guest, certificate: string): Promise<void> {
  const known = await read(guest, certificatePath)
  if (known !== certificate) await write(guest, certificatePath, certificate)
  for (const path of [bundlePath, ...otherBundles]) {
    const bundle = await read(guest, path)
    if (bundle === undefined && path !== bundlePath) continue
    if (bundle?.includes(certificate.trim())) continue
    // One of a former authority stays: what it has signed is gone with its key.
    await write(
      guest,
      path,
      `${bundle === undefined || bundle.endsWith('\n') ? (bundle ?? '') : `${bundle}\n`}${certificate}`,
    )
  }
  if (known !== certificate && (await exists(guest, javaStore))) await refreshJava(guest)
}

/** Best effort: it takes seconds, so nobody waits for it, and an image may have no such program. */
async function refreshJava(guest: Guest): Promise<void> {
  try {
    await guest.spawn({ id: newId('es-'), argv: refresh, envs: {}, timeoutMs: refreshMs, keepBytes: 4096 })
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error
  }
}

async function exists(guest: Guest, path: string): Promise<boolean> {
  return (await guest.stat(path).catch(absent)) !== undefined
}

async function read(guest: Guest, path: string): Promise<string | undefined> {
  const file = await guest.readFile(path).catch(absent)
  if (file === undefined) return undefined
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of file.body as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > bundleBytesMax) {
      file.body.destroy()
      throw new ServiceError('invalid_request', `${path} of the sandbox is too large to be a bundle of certificates`)
    }
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

async function write(guest: Guest, path: string, text: string): Promise<void> {
  await guest.writeFile(path, Readable.from([Buffer.from(text)]))
}

/** What is no file is no bundle. */
function absent(error: unknown): undefined {
  if (
    isServiceError(error, 'not_found') ||
    isServiceError(error, 'invalid_request') ||
    isServiceError(error, 'conflict')
  )
    return undefined
  throw error
}
