import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'

/** Below those that the kernel gives to whoever wants any (`ip_local_port_range`), so that nobody gets one by chance. */
const ports = { from: 20_000, to: 32_000 }
/** One file for each port or subnet that a process of the tests has got, with the number of that process. */
const claimsDir = `${tmpdir()}/atoll-test-ports`

/** Lets a server listen on loopback; returns its port. */
export async function listen(server: Server, port = 0): Promise<number> {
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

/** A port of loopback for a server that comes later, perhaps after listeners on any port, or that goes and comes again. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(ports.from, ports.to)
    if (!claim(String(port))) continue
    const server = createServer()
    try {
      await listen(server, port)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') continue
      throw error
    }
    server.close()
    await once(server, 'close')
    return port
  }
}

/** False while another process, or this one, has got what is called so: it may not use it yet. A claim ends with its process. */
export function claim(name: string): boolean {
  const file = `${claimsDir}/${name}`
  mkdirSync(claimsDir, { recursive: true })
  try {
    writeFileSync(file, String(process.pid), { flag: 'wx' })
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  // Whoever comes next may have it: of two that found the claim of a dead process, neither takes it now.
  if (!isAlive(Number(readClaim(file)))) rmSync(file, { force: true })
  return false
}

/** Empty when it has just gone. */
function readClaim(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

function isAlive(pid: number): boolean {
  // One that is being written has no number yet.
  return pid === 0 || existsSync(`/proc/${pid}`)
}
