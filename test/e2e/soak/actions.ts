import { setTimeout as sleep } from 'node:timers/promises'
import * as checkpoints from './checkpoints.ts'
import type { Client } from './client.ts'
import * as commands from './commands.ts'
import * as lifecycle from './lifecycle.ts'
import type { SandboxModel } from './sandbox.ts'
import * as terminals from './terminals.ts'

export const sandboxesMax = 8
const sandboxesMin = 3

type Action = (client: Client, sandbox: SandboxModel, port: number) => Promise<void>

/** Each with its weight. */
const actions = {
  create: [3, (client) => lifecycle.create(client)],
  fork: [4, (client) => checkpoints.fork(client, Math.min(3, sandboxesMax - client.world.sandboxes.length))],
  delete: [2, lifecycle.remove],
  hibernate: [4, lifecycle.hibernate],
  wake: [3, lifecycle.wake],
  reboot: [1, (client, sandbox) => lifecycle.restart(client, sandbox, 'reboot')],
  'power-cycle': [1, (client, sandbox) => lifecycle.restart(client, sandbox, 'power-cycle')],
  scale: [2, lifecycle.scale],
  timeout: [2, lifecycle.setIdleTimeout],
  checkpoint: [4, checkpoints.takeCheckpoint],
  restore: [3, checkpoints.restore],
  patch: [2, (client) => checkpoints.createPatch(client)],
  'delete checkpoint': [1, (client) => checkpoints.deleteCheckpoint(client)],
  preview: [2, lifecycle.declarePreview],
  exec: [3, terminals.useExec],
  pty: [2, terminals.usePty],
  identity: [4, commands.checkIdentity],
  write: [12, commands.writeFile],
  read: [12, (client, sandbox) => commands.readFile(client, sandbox)],
  program: [14, commands.checkProgram],
} satisfies Record<string, [number, Action]>

type Name = keyof typeof actions
const weights = Object.fromEntries(Object.entries(actions).map(([name, [weight]]) => [name, weight])) as Record<
  Name,
  number
>

/** One client of sandboxes, until the world ends. The port is its own, for previews. */
export async function runClient(client: Client, port: number): Promise<void> {
  const { world, random } = client
  while (!world.over.aborted) {
    // Few calls go to a server that is away.
    if (world.down.isOpen && random.next() < 0.9) await sleep(50)
    else await act(client, port)
    await client.rest()
  }
}

async function act(client: Client, port: number): Promise<void> {
  const { world, random } = client
  const count = world.sandboxes.length
  let name = random.weighed(weights)
  if (count < sandboxesMin && name === 'delete') name = 'create'
  if (count >= sandboxesMax && (name === 'create' || name === 'fork')) name = 'delete'
  const sandbox = client.sandbox()
  world.count(name)
  if (sandbox === undefined) return await lifecycle.create(client)
  const needsSandbox = name !== 'create' && name !== 'fork' && name !== 'patch'
  // A sandbox in `error` stays in it.
  if (needsSandbox && sandbox.wasKilled && !sandbox.kills.isOpen && random.next() < 0.3)
    return await lifecycle.remove(client, sandbox)
  const [, action]: [number, Action] = actions[name]
  await action(client, sandbox, port)
}

/** Without chaos, every sandbox that is left has all of its files, its program and its own name. */
export async function checkSandboxes(client: Client): Promise<void> {
  for (const sandbox of client.world.sandboxes.filter(({ isUsable }) => isUsable)) {
    await commands.checkIdentity(client, sandbox)
    await commands.checkProgram(client, sandbox)
    for (const name of sandbox.files.names) await commands.readFile(client, sandbox, name)
  }
}
