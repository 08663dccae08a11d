import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Host } from '../host.ts'
import type { Box } from './sandbox.ts'
import type { Client } from './client.ts'
import { restart } from './lifecycle.ts'
import { noProgram } from './program.ts'

const pauseMs = { min: 1500, max: 5000 }
const downMsMax = 1000
/** The server has noticed by then. */
const noticedMs = 3000
const endMsMax = 20_000

const weights = { 'kill server': 3, 'stop server': 2, 'kill sandbox': 3, 'kill both': 2, 'kill sandbox and reboot': 2 }

interface Shown {
  status: string
  reason?: string
}

/** Ends the server and the first processes of sandboxes, one every few seconds, until the world ends. */
export async function makeChaos(client: Client, host: Host): Promise<void> {
  const { world, random } = client
  while (!world.over.aborted) {
    await sleep(random.between(pauseMs.min, pauseMs.max), undefined, { signal: world.over }).catch(() => {})
    if (world.over.aborted) return
    const what = random.weighed(weights)
    world.count(what)
    const boxes = world.boxes.filter((box) => box.isUsable)
    const box = boxes[random.between(0, boxes.length - 1)]
    if (what === 'kill server' || what === 'stop server') {
      await takeDown(client, what)
    } else if (box !== undefined && what === 'kill both') {
      await killSandbox(client, host, box, () => takeDown(client, 'kill server'))
    } else if (box !== undefined) {
      await killSandbox(client, host, box, async () => {
        if (what === 'kill sandbox and reboot') await restart(client, box, 'reboot')
      })
    }
  }
}

async function takeDown({ world, random }: Client, how: 'kill server' | 'stop server'): Promise<void> {
  const back = world.down.begin()
  for (const box of world.boxes) box.note(`! ${how}`)
  if (how === 'stop server') {
    const status = await world.server.stop()
    if (status !== 0) world.violated(`the server ended with ${status}: ${world.server.output.slice(-2000)}`)
  } else {
    await world.server.kill()
  }
  await sleep(random.between(0, downMsMax))
  const began = Date.now()
  await world.server.restart()
  world.slowestStartMs = Math.max(world.slowestStartMs, Date.now() - began)
  for (const box of world.boxes) box.note('! the server is back')
  back()
}

/** Kills the first process, does something else at the same time, and looks what becomes of the sandbox. */
async function killSandbox(client: Client, host: Host, box: Box, meanwhile: () => Promise<void>): Promise<void> {
  const { world } = client
  const guest = (await host.guests()).find(({ sandboxId }) => sandboxId === box.id)
  if (guest === undefined || !box.isUsable || !(await isGuest(guest.pid))) return
  box.wasKilled = true
  const endKill = box.kills.begin()
  const endCut = box.cuts.begin()
  const ended = box.program.end(noProgram)
  const killedMs = Date.now()
  box.note('! its first process is killed')
  try {
    process.kill(guest.pid, 'SIGKILL')
  } catch {
    // It has just ended by itself.
  }
  await meanwhile()
  const shown = await settled(client, box, killedMs)
  // What is started again on its disk has lost the program, what was killed in a restore is restored once more.
  ended(shown?.status === 'error' ? 'done' : 'unknown')
  endCut()
  endKill()
  if (shown?.status !== 'error') box.wasKilled = false
  else if (box.revivedMs > killedMs) world.violated(`${box.id} was started again, but is ${JSON.stringify(shown)}`, box)
}

/** What becomes the guest in the middle of a start is a tool of the host until then. */
async function isGuest(pid: number): Promise<boolean> {
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
  return command.startsWith('/.atoll/guest\0')
}

/** In `error`, or on its disk again after a hibernation or a restart that came in between; undefined when it is deleted. */
async function settled(client: Client, box: Box, killedMs: number): Promise<Shown | undefined> {
  let shown: Shown | undefined
  // A server that went away meanwhile is back by now.
  const deadline = Date.now() + endMsMax
  while (Date.now() < deadline) {
    const answer = await client.ask(box, 'GET', '', { allow: ['stopped'] })
    if (box.deletion !== 'none') return undefined
    shown = answer?.status === 200 ? (answer.body as Shown) : undefined
    if (shown?.status === 'error') return shown
    const isNoticed = Date.now() > killedMs + noticedMs
    if (shown?.status === 'hibernated' && isNoticed) return shown
    if (shown?.status === 'running' && isNoticed) {
      const ran = await client.ask(box, 'POST', '/exec/run', { body: { cmd: 'true' } })
      if (ran?.status === 200) return shown
    }
    await sleep(100)
  }
  client.world.violated(`${box.id} was killed, but is ${JSON.stringify(shown)}`, box)
  return shown
}
