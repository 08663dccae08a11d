import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { link, mkdir, readFile, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { reasonOf } from '../../../sdk/src/reasons.ts'
import { configPath, replaceFile } from '../config-file.ts'
import { CliError } from '../exit-codes.ts'

const run = promisify(execFile)

/** What ssh reads on this machine: a key for sandboxes, and known hosts. */
function sshFolder(): string {
  return join(dirname(configPath()), 'ssh')
}

export function keyPath(): string {
  return join(sshFolder(), 'id_ed25519')
}

/** Holds a file of known hosts for each host, under its name. */
export function knownHostsFolder(): string {
  return join(sshFolder(), 'hosts')
}

/** The public key as `ssh-ed25519 AAAA…`. The first call makes the pair; of two at a time one wins. */
export async function publicKey(): Promise<string> {
  const path = keyPath()
  const known = await readPublicKey(path)
  if (known !== undefined) return known
  const draft = `${path}.${randomBytes(6).toString('hex')}`
  await mkdir(sshFolder(), { recursive: true, mode: 0o700 })
  try {
    await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', 'atoll', '-f', draft])
    await link(draft, path)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') throw new CliError('ssh-keygen is missing here', { hint: 'install an OpenSSH client' })
    if (code !== 'EEXIST') throw new CliError(`${path} cannot be made: ${reasonOf(error)}`, { cause: error })
  } finally {
    await Promise.all([draft, `${draft}.pub`].map((file) => rm(file, { force: true })))
  }
  const made = await readPublicKey(path)
  if (made === undefined) throw new CliError(`${path} is no key of ssh`, { hint: 'remove it' })
  return made
}

/** Derived from the private key, so that the two cannot differ. */
async function readPublicKey(path: string): Promise<string | undefined> {
  try {
    await readFile(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new CliError(`${path} cannot be read: ${reasonOf(error)}`, { cause: error })
  }
  const { stdout } = await run('ssh-keygen', ['-y', '-P', '', '-f', path]).catch((error: Error) => {
    throw new CliError(`${path} is no key that ssh-keygen can read without a passphrase`, { cause: error })
  })
  return /^ssh-ed25519 [A-Za-z0-9+/=]+/.exec(stdout)?.[0]
}

/** Says which key a host has. Each connection writes it anew, because the name of an ended sandbox may be taken by another one. */
export async function writeKnownHost(host: string, key: string): Promise<void> {
  await replaceFile(join(knownHostsFolder(), host), `${host} ${key}\n`, 0o600)
}
