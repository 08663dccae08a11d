import type { Socket } from 'node:net'
import { linksIn, textOf } from './proc.ts'
import { programProcesses } from './process-groups.ts'

/**
 * Whether the client of a loopback connection is a program, and not a command of it: a process of the program's group (`programProcesses`)
 * has the client's end open. A command in a session of its own cannot join that group (setpgid(2)).
 *
 * `leader` is the program's process. False when the client has closed its end, or `/proc` cannot be read.
 */
export function isFromProgram(connection: Socket, leader: number): boolean {
  const inode = inodeOfClient(connection)
  if (inode === undefined) return false
  const wanted = `socket:[${inode}]`
  const isOpenIn = (pid: number) => linksIn(`/proc/${pid}/fd`).includes(wanted)
  // Most programs are one process, and a search of all processes takes milliseconds.
  return isOpenIn(leader) || programProcesses(leader).some(isOpenIn)
}

/** The tables of proc_pid_net(5). Clients that use IPv6 sockets for all addresses are in the second. */
const tables = [
  { path: '/proc/net/tcp', prefix: '' },
  { path: '/proc/net/tcp6', prefix: '0000000000000000FFFF0000' },
]

function inodeOfClient({ remoteAddress, remotePort, localAddress, localPort }: Socket): string | undefined {
  // All are absent once the connection has closed.
  if (!remoteAddress || !remotePort || !localAddress || !localPort) return undefined
  for (const { path, prefix } of tables) {
    const client = prefix + endpoint(remoteAddress, remotePort)
    const server = prefix + endpoint(localAddress, localPort)
    // A machine without IPv6 has no second table.
    for (const line of textOf(path).split('\n')) {
      const [, local, remote, , , , , , , inode] = line.trim().split(/\s+/)
      // A socket without an inode is open nowhere: it is left from an earlier connection.
      if (local === client && remote === server && inode !== '0') return inode
    }
  }
  return undefined
}

/** An IPv4 address and a port as the tables show them: the address as a number in the byte order of the machine, in hex. */
function endpoint(address: string, port: number): string {
  const bytes = new Uint8Array(address.split('.').map(Number))
  const [word = 0] = new Uint32Array(bytes.buffer)
  return `${hex(word, 8)}:${hex(port, 4)}`
}

function hex(number: number, digits: number): string {
  return number.toString(16).toUpperCase().padStart(digits, '0')
}
