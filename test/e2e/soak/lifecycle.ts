import { type InitialState, SandboxModel } from './sandbox.ts'
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
  if (answer?.status === 201) track(client, answer.body, { files: new Map(), program: noProgram, mark })
}

/** Makes a started sandbox known to all clients. */
export function track(client: Client, body: unknown, initial: InitialState): SandboxModel {
  const { sandboxID } = body as Shown
  const sandbox = new SandboxModel(sandboxID, initial)
  client.world.ids.add(sandboxID)
  client.world.sandboxes.push(sandbox)
  return sandbox
}

export async function remove(client: Client, sandbox: SandboxModel): Promise<void> {
  sandbox.deletion = sandbox.deletion === 'done' ? 'done' : 'asked'
  const answer = await client.ask(sandbox, 'DELETE', '')
  if (answer?.status !== 204) return
  sandbox.deletion = 'done'
  const { sandboxes } = client.world
  if (sandboxes.includes(sandbox)) sandboxes.splice(sandboxes.indexOf(sandbox), 1)
  const shown = await client.ask(sandbox, 'GET', '', { allow: ['stopped'] })
  if (shown?.status === 200 && (shown.body as Shown).status !== 'stopped') {
    client.world.violated(`${sandbox.id} is ${shown.text} after its deletion`, sandbox)
  }
  // Nobody may use it any more.
  await client.ask(sandbox, 'POST', '/exec/run', { body: { cmd: 'true' } })
}

export async function hibernate(client: Client, sandbox: SandboxModel): Promise<void> {
  const end = sandbox.cuts.begin()
  await client.ask(sandbox, 'POST', '/hibernate', {})
  end()
}

export async function wake(client: Client, sandbox: SandboxModel): Promise<void> {
  const body = client.random.next() < 0.5 ? {} : { timeout: anyTimeout(client) }
  const answer = await client.ask(sandbox, 'POST', '/wake', { body })
  if (answer?.status === 200 && (answer.body as Shown).status !== 'running') {
    client.world.violated(`${sandbox.id} is ${answer.text} after its wake`, sandbox)
  }
}

export async function restart(client: Client, sandbox: SandboxModel, how: 'reboot' | 'power-cycle'): Promise<void> {
  const asked = Date.now()
  const endCut = sandbox.cuts.begin()
  const ended = sandbox.program.end(noProgram)
  const answer = await client.ask(sandbox, 'POST', `/${how}`, {})
  ended(outcomeOf(answer))
  endCut()
  if (answer?.status === 200) sandbox.revivedMs = asked
}

export async function scale(client: Client, sandbox: SandboxModel): Promise<void> {
  const memoryMB = client.random.pick([384, 512, 768, 1024])
  const answer = await client.ask(sandbox, 'POST', '/scale', { body: { memoryMB } })
  if (answer?.status === 200 && (answer.body as Shown).memoryMB !== memoryMB) {
    client.world.violated(`${sandbox.id} was scaled to ${memoryMB}, but says ${answer.text}`, sandbox)
  }
}

export async function setIdleTimeout(client: Client, sandbox: SandboxModel): Promise<void> {
  await client.ask(sandbox, 'POST', '/timeout', { body: { timeout: anyTimeout(client) } })
}

/** A port of this client's own, so that nobody else changes who may ask it. */
export async function declarePreview(client: Client, sandbox: SandboxModel, port: number): Promise<void> {
  const host = `${sandbox.id}-p${port}.preview.localhost`
  const body = { port, authConfig: { scheme: 'bearer', token: 'auto' } }
  const answer = await client.ask(sandbox, 'POST', '/preview', { body })
  const { previewAuthToken } = (answer?.body ?? {}) as { previewAuthToken?: string }
  if (answer === undefined || answer.status >= 300 || previewAuthToken === undefined) return
  const closed = await client.call(sandbox, 'GET', '/', { host, allow: ['unauthorized'] })
  if (closed !== undefined && closed.status !== 401 && closed.status !== 410) {
    client.world.violated(`${host} is open: ${closed.status} ${closed.text}`, sandbox)
  }
  const headers = { 'X-OC-Preview-Token': previewAuthToken }
  const open = await client.call(sandbox, 'GET', '/', { host, headers, allow: ['nothing_listening'] })
  if (open !== undefined && open.status < 400) client.world.violated(`${host} answers ${open.status}`, sandbox)
  // A preview can be removed after its sandbox, which may have been deleted since.
  await client.ask(sandbox, 'DELETE', `/preview/${port}`, { allow: ['stopped'] })
}
