import { randomBytes } from 'node:crypto'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import { configureGuest, createGuest } from '../guest-client/index.ts'
import { RelayUnavailable, type Hostd } from '../hostd/index.ts'

const connectTimeoutMs = 5_000
const retryPauseMs = 3
const retryPauseMsMax = 100
const seedBytes = 64

/** Connects to guests. Throws an error with the `code` of connect(2), or `RelayUnavailable`, after five seconds at most. */
export type GuestRelay = Pick<Hostd, 'connect'>

/**
 * Connects to a guest's socket. The sandbox controls the file. Its folder is a file system of its own on which the kernel follows no
 * symbolic link, so only the sandbox can answer. Throws `unavailable`.
 */
export async function dialSocket(relay: GuestRelay, path: string, signal?: AbortSignal): Promise<Socket> {
  const until = Date.now() + connectTimeoutMs
  for (let pauseMs = retryPauseMs; ; pauseMs = Math.min(pauseMs * 2, retryPauseMsMax)) {
    try {
      return await connect(relay, path, signal)
    } catch (error) {
      signal?.throwIfAborted()
      // The guest's queue of connections is full: for a moment, or for good when the guest hangs.
      const isFull = (error as NodeJS.ErrnoException).code === 'EAGAIN'
      if ((isFull || error instanceof RelayUnavailable) && Date.now() < until) await sleep(pauseMs)
      else throw new ServiceError('unavailable', 'the sandbox does not answer', { cause: error })
    }
  }
}

/**
 * Resolves when the guest behind a socket answers; `isUp` false ends the wait. Throws `unavailable`, at the latest after
 * `timeoutMs`, whatever answers there and however slowly.
 */
export async function waitForGuest(
  relay: GuestRelay,
  path: string,
  timeoutMs: number,
  isUp: () => boolean,
  signal?: AbortSignal,
): Promise<void> {
  const timeUp = AbortSignal.timeout(timeoutMs)
  const end = signal === undefined ? timeUp : AbortSignal.any([signal, timeUp])
  const guest = createGuest((stop) => connect(relay, path, stop), { answerTimeoutMs: timeoutMs })
  let pauseMs = retryPauseMs
  for (;;) {
    signal?.throwIfAborted()
    try {
      await guest.hello(end)
      return
    } catch (error) {
      signal?.throwIfAborted()
      if (!isUp()) throw new ServiceError('unavailable', 'the guest ended while it started', { cause: error })
      if (timeUp.aborted) throw new ServiceError('unavailable', 'the guest did not answer in time', { cause: error })
    }
    await sleep(pauseMs)
    // Back off: a guest that answers nonsense at once is asked until the timeout.
    pauseMs = Math.min(pauseMs * 1.02, retryPauseMsMax)
  }
}

/**
 * Gives the guest fresh random bytes, so that processes started from now on differ from those of another restore. `fork`: nobody who was
 * attached when the memory was saved comes back, so no output is held for them.
 */
export async function reseed(relay: GuestRelay, path: string, { fork }: { fork: boolean }): Promise<void> {
  const seed = randomBytes(seedBytes).toString('hex')
  await configureGuest((signal) => dialSocket(relay, path, signal), { seed, fork })
}

/** An abort takes effect after the relay's answer, so that no connection is left open. */
async function connect(relay: GuestRelay, path: string, signal?: AbortSignal): Promise<Socket> {
  signal?.throwIfAborted()
  const socket = await relay.connect(path)
  if (signal?.aborted === true) socket.destroy()
  signal?.throwIfAborted()
  return socket
}
