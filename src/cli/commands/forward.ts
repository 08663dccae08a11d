import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import type { Command } from 'commander'
import {
  type Atoll,
  NothingListeningError,
  NotFoundError,
  Sandbox,
  SandboxStoppedError,
} from '../../../sdk/src/index.ts'
import { reasonOf } from '../../../sdk/src/reasons.ts'
import { CliError } from '../exit-codes.ts'
import { checkedId, examples } from '../options.ts'
import { note, writeJson, writeLine } from '../output.ts'
import { parseMapping, type PortMapping } from '../port-mapping.ts'
import { clientOf, type Flags } from '../settings.ts'
import { carryConnection } from '../tunnel.ts'

export function addForward(program: Command): void {
  program
    .command('forward')
    .description('lead ports of this machine to ports of a sandbox, for any protocol over TCP, until it is interrupted')
    .addHelpText(
      'after',
      examples(
        'atoll forward sb-0123456789abcdef 3000',
        'atoll forward sb-0123456789abcdef 8080:3000 5433:5432',
        'atoll forward sb-0123456789abcdef 0.0.0.0:8080:3000',
      ),
    )
    .argument('<sandbox>')
    .argument('<port...>', 'PORT, or [BIND:]LOCAL:REMOTE; BIND is 127.0.0.1 by default, LOCAL 0 takes a free port')
    .action(async (id: string, texts: string[], _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const mappings = texts.map(parseMapping)
      const client = await clientOf(flags)
      const sandbox = await Sandbox.connect(checkedId(id, 'sb-', 'sandbox'), { client })
      await forward({ client, sandbox, isJson: flags.json ?? false }, mappings)
    })
}

interface Forwarding {
  client: Atoll
  sandbox: Sandbox
  isJson: boolean
}

/** Returns only by an error: of a port that cannot be used here, or when the sandbox is gone. */
async function forward(forwarding: Forwarding, mappings: readonly PortMapping[]): Promise<void> {
  const ended = new AbortController()
  const servers = mappings.map((mapping) => serverOf(forwarding, mapping, (error) => ended.abort(error)))
  const gone = once(ended.signal, 'abort')
  try {
    for (const [index, server] of servers.entries()) await listen(server, mappings[index]!, forwarding.isJson)
    await tellSilent(forwarding.sandbox, mappings)
    note('Ctrl-C ends it')
    await gone
    throw ended.signal.reason
  } finally {
    for (const server of servers) server.close()
  }
}

function serverOf({ client, sandbox }: Forwarding, { remote }: PortMapping, end: (error: unknown) => void): Server {
  let told = ''
  const carry = async (local: Socket) => {
    try {
      await carryConnection(client, sandbox.id, remote, local)
      told = ''
    } catch (error) {
      local.resetAndDestroy()
      if (error instanceof SandboxStoppedError || error instanceof NotFoundError) return end(error)
      const message = error instanceof NothingListeningError ? silent(remote) : reasonOf(error)
      // A browser tries again and again.
      if (message !== told) note(message)
      told = message
    }
  }
  return createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (local) => void carry(local))
}

async function listen(server: Server, { bind, local, remote }: PortMapping, isJson: boolean): Promise<void> {
  server.listen({ host: bind, port: local, exclusive: true })
  try {
    await once(server, 'listening')
  } catch (error) {
    throw new CliError(`port ${local} of ${bind ?? 'this machine'} cannot be used: ${reasonOf(error)}`, {
      hint: `0:${remote} takes a free one`,
      cause: error,
    })
  }
  // Without it, an error of one accepted connection would end the program.
  server.on('error', (error) => note(`a connection to port ${remote} was not accepted: ${reasonOf(error)}`))
  const { address, port } = server.address() as AddressInfo
  if (isJson) await writeJson({ address, port, remotePort: remote })
  else await writeLine(`${address.includes(':') ? `[${address}]` : address}:${port} -> ${remote}`)
}

/** A server that starts later is reached then. */
async function tellSilent(sandbox: Sandbox, mappings: readonly PortMapping[]): Promise<void> {
  // Of a hibernated one nobody knows.
  if ((await sandbox.info()).status !== 'running') return
  const listening = new Set((await sandbox.ports()).map(({ port }) => port))
  for (const { remote } of mappings) if (!listening.has(remote)) note(silent(remote))
}

function silent(port: number): string {
  return `nothing listens on port ${port} of the sandbox yet; connections work as soon as something does`
}
