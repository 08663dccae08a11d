import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'

/** A process and all that live below it. */
export function processTree(root: number): number[] {
  const parents = new Map<number, number>()
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    const stat = read(`/proc/${name}/stat`)
    parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]))
  }
  const tree = [root]
  for (const pid of tree) for (const [child, parent] of parents) if (parent === pid) tree.push(child)
  return tree
}

/** The TCP ports on which any of the processes listens (proc(5), proc_pid_net(5)). */
export function listeningPorts(pids: readonly number[]): number[] {
  const held = new Set(pids.flatMap((pid) => links(`/proc/${pid}/fd`)))
  const lines = ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((path) => read(path).split('\n'))
  const ports = new Set<number>()
  for (const line of lines) {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/)
    if (state === '0A' && held.has(`socket:[${inode}]`)) ports.add(Number.parseInt(local.split(':')[1] ?? '', 16))
  }
  return [...ports]
}

/** What the processes have for a name in the environment with which they were started. */
export function environmentValues(pids: readonly number[], name: string): string[] {
  const entries = pids.flatMap((pid) => read(`/proc/${pid}/environ`).split('\0'))
  const values = entries.filter((entry) => entry.startsWith(`${name}=`)).map((entry) => entry.slice(name.length + 1))
  return [...new Set(values)]
}

/** The files below a folder that hold a text. */
export function filesWith(folder: string, text: string): string[] {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  return files.map((entry) => join(entry.parentPath, entry.name)).filter((path) => read(path).includes(text))
}

/** Sends bytes to a port of the loopback and returns all that comes back; nothing when the connection is cut. */
export async function sendRaw(port: number, head: readonly string[], body = ''): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>()
  let received = ''
  const socket = connect({ host: '127.0.0.1', port })
  socket.on('data', (chunk: Buffer) => (received += chunk.toString()))
  socket.on('error', () => {})
  socket.once('close', () => resolve(received))
  socket.write(`${head.join('\r\n')}\r\n\r\n${body}`)
  return await promise
}

function links(folder: string): string[] {
  try {
    return readdirSync(folder).map((name) => link(join(folder, name)))
  } catch {
    return []
  }
}

function link(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}

/** Empty for what has ended meanwhile. */
function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
