import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * Makes this process the only holder of a name on this machine for as long as it lives: a listener on an abstract socket
 * (unix(7)), which the kernel takes away with the process however it ends. Undefined when another process has it.
 */
export async function lockName(name: string): Promise<AsyncDisposable | undefined> {
  const server = createServer((connection) => connection.destroy())
  server.unref()
  try {
    server.listen(`\0${name}`)
    await once(server, 'listening')
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EADDRINUSE') return undefined
    throw error
  }
  return { [Symbol.asyncDispose]: () => new Promise((resolve) => server.close(() => resolve())) }
}
