import { ServiceError } from '../errors.ts'

interface Address {
  host: string
  port: number
}

/** Lets a server listen; throws `unavailable`, which says who cannot listen where, and why. */
export async function listen(
  who: string,
  server: { listen(address: Address): Promise<unknown> },
  address: Address,
): Promise<void> {
  try {
    await server.listen(address)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    const why = code === 'EADDRINUSE' ? 'another program listens there' : message
    throw new ServiceError('unavailable', `${who} cannot listen at port ${address.port} of ${address.host}: ${why}`, {
      cause: error,
    })
  }
}
