import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { Sandbox } from '../../../sdk/src/index.ts'
import { CliError, exitCodes } from '../exit-codes.ts'
import { beforeEnd } from '../interrupt.ts'
import { examples } from '../options.ts'
import { printable, write } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'
import { publicKey, writeKnownHost } from '../ssh/files.ts'
import { targetOfHost } from '../ssh/host-options.ts'
import { type SshServer, startSshServer } from '../ssh/server.ts'

/** How long the sshd may take to end. The sandbox ends it later. */
const endMs = 2000

export function addSshProxy(program: Command): void {
  program
    .command('ssh-proxy')
    .description('carry the connection of ssh to a sandbox: the ProxyCommand of "atoll ssh-config"')
    .addHelpText('after', examples("ssh -o 'ProxyCommand atoll ssh-proxy %h' atoll-sb-0123456789abcdef"))
    .argument('<host>', 'atoll-SANDBOX')
    .action(async (host: string, _options: Flags, command: Command) => {
      const target = targetOfHost(host)
      const [client, key] = await Promise.all([clientOf(command.optsWithGlobals<Flags>()), publicKey()])
      const server = await startSshServer(await Sandbox.connect(target, { client }), key)
      await writeKnownHost(host, server.hostKey)
      await carry(server)
    })
}

async function carry({ remote, first, output }: SshServer): Promise<void> {
  // ssh ends its proxy by a signal.
  beforeEnd(async () => {
    const ended = remote.end().then(async () => void (await remote.exited))
    await Promise.race([ended, sleep(endMs)])
  })
  // The end of the output tells what went wrong.
  send(remote.write.bind(remote), () => remote.end()).catch(() => undefined)
  await write(first)
  for (let next = await output.next(); !next.done; next = await output.next()) {
    const { stream, data } = next.value
    if (stream === 'stdout') await write(data)
    else process.stderr.write(printable(Buffer.from(data).toString()))
  }
  const status = await remote.exited
  // 255: the client went away, or was not let in, which ssh tells.
  if (status !== 0 && status !== 255) {
    throw new CliError(`sshd ended with ${status}`, { exitCode: exitCodes.failed })
  }
}

async function send(data: (chunk: Buffer) => Promise<void>, end: () => Promise<void>): Promise<void> {
  for await (const chunk of process.stdin) await data(chunk as Buffer)
  await end()
}
