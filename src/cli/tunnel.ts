import type { Socket } from 'node:net'
import type { WebSocket } from 'ws'
import type { Atoll } from '../../sdk/src/index.ts'
import { opened, socketTo } from '../../sdk/src/connect-node.ts'

/** One side is not read while this much waits for the other. */
const unsentBytesMax = 256 * 1024
/** The text message by which either side ends its direction. */
const endMessage = '{"type":"end"}'
/** RFC 6455 § 7.4.1. */
const closedNormally = 1000

/**
 * Carries a connection to a port of a sandbox, each direction with its own end and no faster than its reader. `local` must allow half-open and
 * be paused. Resolves when the port took the connection; throws an `AtollError` when it did not, such as `NothingListeningError`.
 */
export async function carryConnection(client: Atoll, sandboxId: string, port: number, local: Socket): Promise<void> {
  const address = client.address(`/api/sandboxes/${sandboxId}/ports/${port}/tunnel`)
  local.on('error', () => local.destroy())
  const remote = await socketTo(address, client.credentials)
  if (local.destroyed) close(remote)
  local.once('close', () => close(remote))
  carryBack(remote, local)
  await opened(remote, address)
  carryThere(local, remote)
}

function carryThere(local: Socket, remote: WebSocket): void {
  local.on('data', (bytes) => {
    remote.send(bytes, () => {
      if (remote.bufferedAmount <= unsentBytesMax) local.resume()
    })
    if (remote.bufferedAmount > unsentBytesMax) local.pause()
  })
  local.once('end', () => {
    if (remote.readyState === remote.OPEN) remote.send(endMessage)
  })
  local.resume()
}

function carryBack(remote: WebSocket, local: Socket): void {
  remote.binaryType = 'nodebuffer'
  remote.on('message', (message: Buffer, isBinary: boolean) => {
    // The one text message there is.
    if (!isBinary) local.end()
    else if (local.writable && !local.write(message)) remote.pause()
  })
  local.on('drain', () => remote.resume())
  remote.once('close', (code: number) => {
    if (code === closedNormally) local.destroySoon()
    else if (!local.destroyed) local.resetAndDestroy()
  })
}

function close(remote: WebSocket): void {
  if (remote.readyState === remote.CONNECTING) remote.terminate()
  else remote.close(closedNormally)
  // A paused one would not notice the answer.
  remote.resume()
}
