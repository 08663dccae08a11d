/** What clients do to a sandbox as a whole. */
import { type Beginnings, Box } from './sandbox.ts'
import type { Answer } from './calls.ts'
import type { Client } from './client.ts'
import type { Outcome } from './file-ranges.ts'
import { noProgram } from './program.ts'

interface Shown {
  sandboxID: string
  status: string
  memoryMB: number
  reason?: string
}

export function outcomeOf(answer: Answer | undefined): Outcome {
  if (answer === undefined) return 'unknown'
  return answer.status < 300 ? 'done' : 'refused'
}

/** Idle sandboxes hibernate, some of them at once. */
export function anyTimeout(client: Client): number {
  return client.random.pick([1, 2, 3, 300, 0])
}

export async function create(client: Client): Promise<void> {
  const mark = `mark-${client.world.number()}`
  const body = { timeout: anyTimeout(client), memoryMB: 512, envs: { BOX: mark } }
  const answer = await client.call(undefined, 'POST', '/api/sandboxes', { body })
  if (answer?.status === 201) enter(client, answer.body, { files: new Map(), program: noProgram, mark })
}

/** A sandbox that has started is everybody's. */
export function enter(client: Client, body: unknown, beginnings: Beginnings): Box {
  const { sandboxID } = body as Shown
  const box = new Box(sandboxID, beginnings)
  client.world.ids.add(sandboxID)
  client.world.boxes.push(box)
  return box
}

export async function remove(client: Client, box: Box): Promise<void> {
  box.deletion = box.deletion === 'done' ? 'done' : 'asked'
  const answer = await client.ask(box, 'DELETE', '')
  if (answer?.status !== 204) return
  box.deletion = 'done'
  const { boxes } = client.world
  if (boxes.includes(box)) boxes.splice(boxes.indexOf(box), 1)
  const shown = await client.ask(box, 'GET', '', { allow: ['stopped'] })
  if (shown?.status === 200 && (shown.body as Shown).status !== 'stopped') {
    client.world.violated(`${box.id} is ${shown.text} after its deletion`, box)
  }
  // Nobody may use it any more.
  await client.ask(box, 'POST', '/exec/run', { body: { cmd: 'true' } })
}

export async function hibernate(client: Client, box: Box): Promise<void> {
  const end = box.cuts.begin()
  await client.ask(box, 'POST', '/hibernate', {})
  end()
}

export async function wake(client: Client, box: Box): Promise<void> {
  const body = client.random.next() < 0.5 ? {} : { timeout: anyTimeout(client) }
  const answer = await client.ask(box, 'POST', '/wake', { body })
  if (answer?.status === 200 && (answer.body as Shown).status !== 'running') {
    client.world.violated(`${box.id} is ${answer.text} after its wake`, box)
  }
}

export async function restart(client: Client, box: Box, how: 'reboot' | 'power-cycle'): Promise<void> {
  const asked = Date.now()
  const endCut = box.cuts.begin()
  const ended = box.program.end(noProgram)
  const answer = await client.ask(box, 'POST', `/${how}`, {})
  ended(outcomeOf(answer))
  endCut()
  if (answer?.status === 200) box.revivedMs = asked
}

export async function scale(client: Client, box: Box): Promise<void> {
  const memoryMB = client.random.pick([384, 512, 768, 1024])
  const answer = await client.ask(box, 'POST', '/scale', { body: { memoryMB } })
  if (answer?.status === 200 && (answer.body as Shown).memoryMB !== memoryMB) {
    client.world.violated(`${box.id} was scaled to ${memoryMB}, but says ${answer.text}`, box)
  }
}

export async function setIdleTimeout(client: Client, box: Box): Promise<void> {
  await client.ask(box, 'POST', '/timeout', { body: { timeout: anyTimeout(client) } })
}

/** A port of this client's own, so that nobody else changes who may ask it. */
export async function declarePreview(client: Client, box: Box, port: number): Promise<void> {
  const host = `${box.id}-p${port}.preview.localhost`
  const body = { port, authConfig: { scheme: 'bearer', token: 'auto' } }
  const answer = await client.ask(box, 'POST', '/preview', { body })
  const { previewAuthToken } = (answer?.body ?? {}) as { previewAuthToken?: string }
  if (answer === undefined || answer.status >= 300 || previewAuthToken === undefined) return
  const closed = await client.call(box, 'GET', '/', { host, allow: ['unauthorized'] })
  if (closed !== undefined && closed.status !== 401 && closed.status !== 410) {
    client.world.violated(`${host} is open: ${closed.status} ${closed.text}`, box)
  }
  const headers = { 'X-OC-Preview-Token': previewAuthToken }
  const open = await client.call(box, 'GET', '/', { host, headers, allow: ['nothing_listening'] })
  if (open !== undefined && open.status < 400) client.world.violated(`${host} answers ${open.status}`, box)
  await client.ask(box, 'DELETE', `/preview/${port}`)
}
