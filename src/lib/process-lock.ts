import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * Locks a name on this machine for the life of the process: a listener on an abstract socket (unix(7)), which the kernel removes when the
 * process ends for any reason. Undefined when another process holds the name.
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
