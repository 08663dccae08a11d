import { join } from 'node:path'
import { UsageError } from '../exit-codes.ts'
import type { Flags } from '../settings.ts'
import { keyPath, knownHostsFolder } from './files.ts'

const program = join(import.meta.dirname, '../../../bin/atoll')
const hostPattern = /^[a-z0-9][a-z0-9-]*$/

/** Host names of sandboxes for ssh are this and the id or name. */
export const hostPrefix = 'atoll-'

/**
 * Stands beside patterns of hosts. Before 9.6, ssh gives the shell a host name of any characters, such as that of a submodule of git, and a quote
 * would end the quotes around `%h`.
 */
export const noQuotes = `"!*'*"`

export function hostOf(target: string): string {
  return checkedHost(`${hostPrefix}${target}`, target)
}

/** The id or name of a sandbox in the host name that ssh was given. */
export function targetOfHost(host: string): string {
  if (!host.startsWith(hostPrefix)) throw new UsageError(`${JSON.stringify(host)} does not begin with ${hostPrefix}`)
  return checkedHost(host, host).slice(hostPrefix.length)
}

/** It becomes the name of a file and a word of ssh's configuration. */
function checkedHost(host: string, told: string): string {
  if (hostPattern.test(host) && host.length > hostPrefix.length) return host
  throw new UsageError(`${JSON.stringify(told)} is no id or name of a sandbox`)
}

/**
 * Options of `ssh_config(5)` for the hosts of sandboxes. The server says which host key a sandbox has (`ssh-proxy` writes it before ssh
 * reads the file), so nobody is asked and no key is trusted at first sight.
 */
export function hostOptions({ url, context }: Flags): [string, string][] {
  const server = [
    ...(url === undefined ? [] : ['--url', url]),
    ...(context === undefined ? [] : ['--context', context]),
  ]
  const proxy = [program, ...server, 'ssh-proxy'].map((word) => escaped(shellWord(word)))
  return [
    ['ProxyCommand', `${proxy.join(' ')} '%h'`],
    ['User', 'root'],
    ['IdentityFile', quoted(escaped(keyPath()))],
    ['IdentitiesOnly', 'yes'],
    ['UserKnownHostsFile', quoted(join(escaped(knownHostsFolder()), '%h'))],
    ['GlobalKnownHostsFile', '/dev/null'],
    ['StrictHostKeyChecking', 'yes'],
    ['UpdateHostKeys', 'no'],
    ['CheckHostIP', 'no'],
    // Whatever runs in the sandbox may ask for a password or a ticket of Kerberos, and would get it.
    ['PreferredAuthentications', 'publickey'],
    // Settings for all hosts would give it the agent and the screen.
    ['ForwardAgent', 'no'],
    ['ForwardX11', 'no'],
  ]
}

/** ssh runs the command by the user's shell. */
function shellWord(word: string): string {
  return /^[\w./:@-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`
}

/** ssh replaces what follows a percent sign. */
function escaped(text: string): string {
  return text.replaceAll('%', '%%')
}

function quoted(path: string): string {
  if (/["\n]/.test(path)) throw new UsageError(`ssh cannot have the path ${JSON.stringify(path)}`)
  return `"${path}"`
}
