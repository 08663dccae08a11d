/** Checkpoints: taken, restored in place, started from, patched, deleted. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { SandboxModel, CheckpointKind, KnownPatch, CheckpointModel } from './sandbox.ts'
import { type Answer, Excuses } from './calls.ts'
import type { Client } from './client.ts'
import { anyTimeout, track, outcomeOf } from './lifecycle.ts'
import { noProgram } from './program.ts'
import { checkProgram, readFile, run, writeFile } from './commands.ts'

const settleMsMax = 240_000
const kindLimits = { full: 3, disk_only: 5 }

interface Shown {
  id: string
  status: string
  error?: string
}

export async function takeCheckpoint(client: Client, sandbox: SandboxModel): Promise<void> {
  const { world, random } = client
  const kind: CheckpointKind = random.next() < 0.6 ? 'full' : 'disk_only'
  const mine = world.checkpoints.filter((checkpoint) => checkpoint.sandbox === sandbox && checkpoint.kind === kind)
  if (mine.length >= kindLimits[kind]) return
  const excuses = new Excuses(world, sandbox)
  const files = sandbox.files.capture()
  const program = sandbox.program.capture()
  const body = { name: `checkpoint-${world.number()}`, kind }
  const answer = await client.ask(sandbox, 'POST', '/checkpoints', { body })
  const { id } = (answer?.body ?? {}) as Shown
  const settled = answer?.status === 201 ? await settle(client, sandbox, id) : undefined
  const saved = { files: files(), program: kind === 'full' ? program() : (program(), noProgram) }
  if (settled?.status === 'ready') {
    world.checkpoints.push({ id, sandbox, kind, ...saved, mark: sandbox.mark, deletion: 'none', patches: [] })
  } else if (settled !== undefined && !excuses.forCut) {
    await excuses.report(`checkpoint ${id} is ${settled.status}: ${settled.error}`)
  } else if (settled?.status === 'failed' && !settled.error) {
    world.violated(`checkpoint ${id} failed without a reason`, sandbox)
  }
}

/** Undefined when the server went away meanwhile, and when it took too long, which is told. */
async function settle(client: Client, sandbox: SandboxModel, id: string): Promise<Shown | undefined> {
  const deadline = Date.now() + settleMsMax
  while (client.world.violations.length === 0) {
    const answer = await client.ask(sandbox, 'GET', '/checkpoints', { allow: ['stopped'] })
    const shown = ((answer?.body ?? []) as Shown[]).find((each) => each.id === id)
    if (shown !== undefined && shown.status !== 'processing') return shown
    if (answer?.status === 200 && shown === undefined) {
      client.world.violated(`checkpoint ${id} is not listed`, sandbox)
      return undefined
    }
    if (Date.now() > deadline) {
      client.world.violated(`checkpoint ${id} did not settle`, sandbox)
      return undefined
    }
    await sleep(40)
  }
  return undefined
}

export async function restore(client: Client, sandbox: SandboxModel): Promise<void> {
  const checkpoint = client.checkpoint(sandbox)
  if (checkpoint === undefined) return
  // Something that must be gone afterwards.
  await writeFile(client, sandbox)
  const asked = Date.now()
  const endCut = sandbox.cuts.begin()
  const files = sandbox.files.restore(checkpoint.files)
  const program = sandbox.program.end(checkpoint.program)
  const answer = await client.ask(sandbox, 'POST', `/checkpoints/${checkpoint.id}/restore`, {
    body: {},
    allow: ['not_found'],
  })
  assertKnown(client, checkpoint, answer)
  files(outcomeOf(answer))
  program(outcomeOf(answer))
  endCut()
  if (answer?.status !== 200) return
  sandbox.revivedMs = asked
  await readFile(client, sandbox, client.file)
  await checkProgram(client, sandbox)
}

export async function fork(client: Client, sandboxesMax: number): Promise<void> {
  const { world, random } = client
  const checkpoint = client.checkpoint()
  if (checkpoint === undefined) return
  const count = random.next() < 0.6 ? undefined : random.between(1, sandboxesMax)
  const mark = random.next() < 0.5 ? undefined : `mark-${world.number()}`
  const wasDown = world.down.watch()
  const before = checkpoint.patches.filter(({ sequence, deletion }) => sequence !== undefined && deletion === 'none')
  const deleted = checkpoint.patches.filter(({ deletion }) => deletion === 'done')
  const answer = await client.call(undefined, 'POST', `/api/sandboxes/from-checkpoint/${checkpoint.id}`, {
    body: {
      timeout: anyTimeout(client),
      ...(count === undefined ? {} : { count }),
      ...(mark === undefined ? {} : { envs: { BOX: mark } }),
    },
    allow: ['patch_failed', 'not_found'],
  })
  assertKnown(client, checkpoint, answer)
  if (answer === undefined || answer.status === 404) return
  const results = answer.status === 201 && count !== undefined ? (answer.body as Results).sandboxes : [answer.body]
  for (const result of results) {
    const { code, sandboxID } = result as { code?: string; sandboxID?: string }
    if (sandboxID === undefined) {
      assertRefusalAllowed(client, checkpoint, { code, wasDown: wasDown(), deleted }, JSON.stringify(result))
      continue
    }
    const failing = before.find((patch) => patch.line === undefined && patch.deletion === 'none')
    const sandbox = track(client, result, { ...checkpoint, mark: mark ?? checkpoint.mark })
    sandbox.note(`started from ${checkpoint.id} (${checkpoint.kind}) of ${checkpoint.sandbox.id}`)
    if (failing !== undefined) world.violated(`${sandboxID} started although patch ${failing.id} fails`, sandbox)
    await assertPatches(client, sandbox, before)
  }
}

interface Results {
  sandboxes: unknown[]
}

interface Refusal {
  code: string | undefined
  wasDown: boolean
  /** Patches that nobody could run any more. */
  deleted: readonly KnownPatch[]
}

function assertRefusalAllowed(
  client: Client,
  checkpoint: CheckpointModel,
  { code, wasDown, deleted }: Refusal,
  text: string,
): void {
  const mayFail = checkpoint.patches.some((patch) => patch.line === undefined && !deleted.includes(patch))
  if (code === 'patch_failed' && mayFail) return
  if (code === 'not_found' && checkpoint.deletion !== 'none') return
  // A server that goes away cuts off what starts.
  if (code === 'unavailable' && wasDown) return
  client.world.violated(`no start from ${checkpoint.id}: ${text}`, checkpoint.sandbox)
}

/** What the patches have written is there, in the order of their making. */
async function assertPatches(client: Client, sandbox: SandboxModel, patches: readonly KnownPatch[]): Promise<void> {
  const wasRestored = sandbox.program.ends.watch()
  const result = await run(client, sandbox, 'sh', ['-c', 'cat /var/patches 2> /dev/null || true'])
  if (result === undefined || wasRestored()) return
  const inTurn = patches.toSorted((one, other) => (one.sequence ?? 0) - (other.sequence ?? 0))
  const wanted = inTurn.flatMap(({ line }) => line ?? [])
  // A wake may have run some of them again.
  const lines = [...new Set(result.stdout.split('\n'))].filter((line) => wanted.includes(line))
  if (lines.join(' ') === wanted.join(' ')) return
  client.world.violated(`${sandbox.id} was patched with "${lines.join(' ')}", not "${wanted.join(' ')}"`, sandbox)
}

export async function createPatch(client: Client): Promise<void> {
  const { world, random } = client
  const checkpoint = client.checkpoint()
  if (checkpoint === undefined || checkpoint.patches.length > 5) return
  const fails = random.next() < 0.3
  const line = fails ? undefined : `patch-${world.number()}`
  const script = fails ? 'echo no >&2; exit 3' : `echo ${line} >> /var/patches`
  const known: KnownPatch = { id: '', deletion: 'none', ...(line === undefined ? {} : { line }) }
  checkpoint.patches.push(known)
  const path = `/api/sandboxes/checkpoints/${checkpoint.id}/patches`
  const answer = await client.call(undefined, 'POST', path, {
    body: { script, strategy: fails ? 'on_wake' : random.pick(['on_wake', 'on_wake', 'on_resume']) },
    allow: ['not_found'],
  })
  assertKnown(client, checkpoint, answer)
  if (answer?.status !== 201) return
  const { patch: made } = answer.body as { patch: { id: string; sequence: number } }
  Object.assign(known, { id: made.id, sequence: made.sequence })
  if (!fails) return
  await client.rest()
  known.deletion = 'asked'
  const removed = await client.call(undefined, 'DELETE', `${path}/${made.id}`, { allow: ['not_found'] })
  assertKnown(client, checkpoint, removed)
  if (removed?.status === 204) known.deletion = 'done'
}

export async function deleteCheckpoint(client: Client): Promise<void> {
  const checkpoint = client.checkpoint()
  if (checkpoint === undefined) return
  checkpoint.deletion = 'asked'
  const path = `/api/sandboxes/${checkpoint.sandbox.id}/checkpoints/${checkpoint.id}`
  const answer = await client.call(undefined, 'DELETE', path, { allow: ['not_found'] })
  if (answer?.status !== 204 && answer?.status !== 404) return
  checkpoint.deletion = 'done'
  const { checkpoints } = client.world
  if (checkpoints.includes(checkpoint)) checkpoints.splice(checkpoints.indexOf(checkpoint), 1)
}

/** Only a deleted checkpoint may be unknown to the server. */
function assertKnown(client: Client, checkpoint: CheckpointModel, answer: Answer | undefined): void {
  if (answer?.status !== 404 || checkpoint.deletion !== 'none') return
  client.world.violated(`checkpoint ${checkpoint.id} is lost: ${answer.text}`, checkpoint.sandbox)
}
