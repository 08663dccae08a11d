import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Host, HostProcess } from '../host.ts'
import type { Client } from './client.ts'
import { restart } from './lifecycle.ts'
import { noProgram } from './program.ts'
import type { SandboxModel } from './sandbox.ts'

const pauseMs = { min: 1500, max: 4000 }
const downMsMax = 1500
/** The server has noticed the end of a first process by then. */
const noticedMs = 3000
const endMsMax = 60_000

const weights = {
  server: 2,
  'server by SIGTERM': 2,
  agent: 4,
  'server and agent': 1,
  'session sandbox': 2,
  'server and session sandbox': 1,
  sandbox: 2,
  'sandbox, rebooted meanwhile': 1,
  'server and sandbox': 1,
}

interface Shown {
  status: string
  reason?: string
}

/**
 * Kills the server, agents and first processes of sandboxes, one every few seconds, until the world ends; the server is started
 * again. Of a sandbox with a model it tells the model, since its clients know what they may expect; sessions must cope by themselves.
 */
export async function runChaos(client: Client, host: Host): Promise<void> {
  const { world, random } = client
  while (!world.over.aborted) {
    await sleep(random.between(pauseMs.min, pauseMs.max), undefined, { signal: world.over }).catch(() => {})
    if (world.over.aborted) return
    const victim = random.weighed(weights)
    const sandboxes = world.sandboxes.filter(({ isUsable }) => isUsable)
    const sandbox = sandboxes[random.between(0, sandboxes.length - 1)]
    world.count(`kill ${victim}`)
    switch (victim) {
      case 'server':
      case 'server by SIGTERM':
        await takeDown(client, victim)
        break
      case 'agent':
        await killOne(client, victim, await host.agents())
        break
      case 'session sandbox':
        await killOne(client, victim, await sessionGuests(host))
        break
      case 'server and agent':
        await takeDown(client, 'server', async () => await killOne(client, 'agent', await host.agents()))
        break
      case 'server and session sandbox':
        await takeDown(client, 'server', async () => await killOne(client, 'sandbox', await sessionGuests(host)))
        break
      case 'sandbox':
      case 'sandbox, rebooted meanwhile':
      case 'server and sandbox':
        if (sandbox === undefined) break
        await killSandbox(client, host, sandbox, async () => {
          if (victim === 'server and sandbox') await takeDown(client, 'server')
          if (victim === 'sandbox, rebooted meanwhile') await restart(client, sandbox, 'reboot')
        })
    }
  }
}

async function takeDown(
  { world, random }: Client,
  how: 'server' | 'server by SIGTERM',
  meanwhile?: () => Promise<void>,
): Promise<void> {
  const back = world.down.begin()
  world.note(`kill ${how}`)
  if (how === 'server') {
    await world.server.kill()
  } else {
    const status = await world.server.stop()
    if (status !== 0) world.violated(`the server ended with ${status}: ${world.server.output.slice(-2000)}`)
  }
  await meanwhile?.()
  await sleep(random.between(0, downMsMax))
  const began = Date.now()
  await world.server.restart()
  world.slowestStartMs = Math.max(world.slowestStartMs, Date.now() - began)
  world.note('the server is back')
  back()
}

/** The first processes of sandboxes in which an agent runs. */
async function sessionGuests(host: Host): Promise<HostProcess[]> {
  const withAgent = new Set((await host.agents()).map(({ sandboxId }) => sandboxId))
  return (await host.guests()).filter(({ sandboxId }) => withAgent.has(sandboxId))
}

async function killOne({ world, random }: Client, what: string, processes: readonly HostProcess[]): Promise<void> {
  const [first, ...rest] = processes
  if (first === undefined) return
  const { pid, sandboxId } = random.pick([first, ...rest])
  world.note(`kill ${what} of ${sandboxId}`)
  kill(pid)
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has just ended by itself.
  }
}

/** Kills the first process, does something else at the same time, and checks the state that the sandbox settles in. */
async function killSandbox(
  client: Client,
  host: Host,
  sandbox: SandboxModel,
  meanwhile: () => Promise<void>,
): Promise<void> {
  const { world } = client
  const guest = (await host.guests()).find(({ sandboxId }) => sandboxId === sandbox.id)
  if (guest === undefined || !sandbox.isUsable || !(await isGuest(guest.pid))) return
  sandbox.wasKilled = true
  const endKill = sandbox.kills.begin()
  const endCut = sandbox.cuts.begin()
  const ended = sandbox.program.end(noProgram)
  const killedMs = Date.now()
  sandbox.note('! its first process is killed')
  kill(guest.pid)
  await meanwhile()
  const shown = await settledState(client, sandbox, killedMs)
  // A sandbox that starts again on its disk has lost the program; one that was killed in a restore is restored once more.
  ended(shown?.status === 'error' ? 'done' : 'unknown')
  endCut()
  endKill()
  if (shown?.status !== 'error') sandbox.wasKilled = false
  else if (sandbox.revivedMs > killedMs)
    world.violated(`${sandbox.id} was started again, but is ${JSON.stringify(shown)}`, sandbox)
}

/** The process that becomes the guest is a tool of the host until late in a start. */
async function isGuest(pid: number): Promise<boolean> {
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
  return command.startsWith('/.atoll/guest\0')
}

/** In `error`, or on its disk again after a hibernation or a restart that came in between; undefined when it is deleted. */
async function settledState(client: Client, sandbox: SandboxModel, killedMs: number): Promise<Shown | undefined> {
  let shown: Shown | undefined
  const deadline = Date.now() + endMsMax
  while (Date.now() < deadline) {
    const answer = await client.ask(sandbox, 'GET', '', { allow: ['stopped'] })
    if (sandbox.deletion !== 'none') return undefined
    shown = answer?.status === 200 ? (answer.body as Shown) : undefined
    if (shown?.status === 'error') return shown
    const isNoticed = Date.now() > killedMs + noticedMs
    if (shown?.status === 'hibernated' && isNoticed) return shown
    if (shown?.status === 'running' && isNoticed) {
      const ran = await client.ask(sandbox, 'POST', '/exec/run', { body: { cmd: 'true' } })
      if (ran?.status === 200) return shown
    }
    await sleep(100)
  }
  client.world.violated(`${sandbox.id} was killed, but is ${JSON.stringify(shown)}`, sandbox)
  return shown
}
