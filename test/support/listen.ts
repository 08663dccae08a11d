import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server } from 'node:net'

/** Below those that the kernel gives to whoever wants any (`ip_local_port_range`), so that nobody gets one by chance. */
const ports = { from: 20_000, to: 32_000 }
const given = new Set<number>()

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
    if (given.has(port)) continue
    given.add(port)
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
