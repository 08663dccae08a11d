/** Checkpoints: taken, restored in place, started from, patched, deleted. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Box, CheckpointKind, KnownPatch, Saving } from './sandbox.ts'
import { type Answer, Excuses } from './calls.ts'
import type { Client } from './client.ts'
import { anyTimeout, enter, outcomeOf } from './lifecycle.ts'
import { noProgram } from './program.ts'
import { askProgram, readFile, run, writeFile } from './commands.ts'

const settleMsMax = 45_000
const kindLimits = { full: 3, disk_only: 5 }

interface Shown {
  id: string
  status: string
  error?: string
}

export async function checkpoint(client: Client, box: Box): Promise<void> {
  const { world, random } = client
  const kind: CheckpointKind = random.next() < 0.6 ? 'full' : 'disk_only'
  const mine = world.savings.filter((saving) => saving.box === box && saving.kind === kind)
  if (mine.length >= kindLimits[kind]) return
  const excuses = new Excuses(world, box)
  const files = box.files.capture()
  const program = box.program.capture()
  const body = { name: `save-${world.number()}`, kind }
  const answer = await client.ask(box, 'POST', '/checkpoints', { body })
  const { id } = (answer?.body ?? {}) as Shown
  const settled = answer?.status === 201 ? await settle(client, box, id) : undefined
  const saved = { files: files(), program: kind === 'full' ? program() : (program(), noProgram) }
  if (settled?.status === 'ready') {
    world.savings.push({ id, box, kind, ...saved, mark: box.mark, deletion: 'none', patches: [] })
  } else if (settled !== undefined && !excuses.forCut) {
    await excuses.report(`checkpoint ${id} is ${settled.status}: ${settled.error}`)
  } else if (settled?.status === 'failed' && !settled.error) {
    world.violated(`checkpoint ${id} failed without a reason`, box)
  }
}

/** Undefined when the server went away meanwhile, and when it took too long, which is told. */
async function settle(client: Client, box: Box, id: string): Promise<Shown | undefined> {
  const deadline = Date.now() + settleMsMax
  while (client.world.violations.length === 0) {
    const answer = await client.ask(box, 'GET', '/checkpoints', { allow: ['stopped'] })
    const shown = ((answer?.body ?? []) as Shown[]).find((each) => each.id === id)
    if (shown !== undefined && shown.status !== 'processing') return shown
    if (answer?.status === 200 && shown === undefined) {
      client.world.violated(`checkpoint ${id} is not listed`, box)
      return undefined
    }
    if (Date.now() > deadline) {
      client.world.violated(`checkpoint ${id} did not settle`, box)
      return undefined
    }
    await sleep(40)
  }
  return undefined
}

export async function restore(client: Client, box: Box): Promise<void> {
  const saving = client.saving(box)
  if (saving === undefined) return
  // Something that must be gone afterwards.
  await writeFile(client, box)
  const asked = Date.now()
  const endCut = box.cuts.begin()
  const files = box.files.restore(saving.files)
  const program = box.program.end(saving.program)
  const answer = await client.ask(box, 'POST', `/checkpoints/${saving.id}/restore`, {
    body: {},
    allow: ['not_found'],
  })
  demandGone(client, saving, answer)
  files(outcomeOf(answer))
  program(outcomeOf(answer))
  endCut()
  if (answer?.status !== 200) return
  box.revivedMs = asked
  await readFile(client, box, client.file)
  await askProgram(client, box)
}

export async function fork(client: Client, boxesMax: number): Promise<void> {
  const { world, random } = client
  const saving = client.saving()
  if (saving === undefined) return
  const count = random.next() < 0.6 ? undefined : random.between(1, boxesMax)
  const mark = random.next() < 0.5 ? undefined : `mark-${world.number()}`
  const wasDown = world.down.watch()
  const before = saving.patches.filter(({ sequence, deletion }) => sequence !== undefined && deletion === 'none')
  const deleted = saving.patches.filter(({ deletion }) => deletion === 'done')
  const answer = await client.call(undefined, 'POST', `/api/sandboxes/from-checkpoint/${saving.id}`, {
    body: {
      timeout: anyTimeout(client),
      ...(count === undefined ? {} : { count }),
      ...(mark === undefined ? {} : { envs: { BOX: mark } }),
    },
    allow: ['patch_failed', 'not_found'],
  })
  demandGone(client, saving, answer)
  if (answer === undefined || answer.status === 404) return
  const results = answer.status === 201 && count !== undefined ? (answer.body as Results).sandboxes : [answer.body]
  for (const result of results) {
    const { code, sandboxID } = result as { code?: string; sandboxID?: string }
    if (sandboxID === undefined) {
      judgeRefusal(client, saving, { code, wasDown: wasDown(), deleted }, JSON.stringify(result))
      continue
    }
    const failing = before.find((patch) => patch.line === undefined && patch.deletion === 'none')
    const box = enter(client, result, { ...saving, mark: mark ?? saving.mark })
    box.note(`started from ${saving.id} (${saving.kind}) of ${saving.box.id}`)
    if (failing !== undefined) world.violated(`${sandboxID} started although patch ${failing.id} fails`, box)
    await demandPatches(client, box, before)
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

function judgeRefusal(client: Client, saving: Saving, { code, wasDown, deleted }: Refusal, text: string): void {
  const mayFail = saving.patches.some((patch) => patch.line === undefined && !deleted.includes(patch))
  if (code === 'patch_failed' && mayFail) return
  if (code === 'not_found' && saving.deletion !== 'none') return
  // A server that goes away cuts off what starts.
  if (code === 'unavailable' && wasDown) return
  client.world.violated(`no start from ${saving.id}: ${text}`, saving.box)
}

/** What the patches have written is there, in the order of their making. */
async function demandPatches(client: Client, box: Box, patches: readonly KnownPatch[]): Promise<void> {
  const wasRestored = box.program.ends.watch()
  const result = await run(client, box, 'sh', ['-c', 'cat /var/patches 2> /dev/null || true'])
  if (result === undefined || wasRestored()) return
  const inTurn = patches.toSorted((one, other) => (one.sequence ?? 0) - (other.sequence ?? 0))
  const wanted = inTurn.flatMap(({ line }) => line ?? [])
  // A wake may have run some of them again.
  const lines = [...new Set(result.stdout.split('\n'))].filter((line) => wanted.includes(line))
  if (lines.join(' ') === wanted.join(' ')) return
  client.world.violated(`${box.id} was patched with "${lines.join(' ')}", not "${wanted.join(' ')}"`, box)
}

export async function makePatch(client: Client): Promise<void> {
  const { world, random } = client
  const saving = client.saving()
  if (saving === undefined || saving.patches.length > 5) return
  const fails = random.next() < 0.3
  const line = fails ? undefined : `patch-${world.number()}`
  const script = fails ? 'echo no >&2; exit 3' : `echo ${line} >> /var/patches`
  const known: KnownPatch = { id: '', deletion: 'none', ...(line === undefined ? {} : { line }) }
  saving.patches.push(known)
  const path = `/api/sandboxes/checkpoints/${saving.id}/patches`
  const answer = await client.call(undefined, 'POST', path, {
    body: { script, strategy: fails ? 'on_wake' : random.pick(['on_wake', 'on_wake', 'on_resume']) },
    allow: ['not_found'],
  })
  demandGone(client, saving, answer)
  if (answer?.status !== 201) return
  const { patch: made } = answer.body as { patch: { id: string; sequence: number } }
  Object.assign(known, { id: made.id, sequence: made.sequence })
  if (!fails) return
  await client.rest()
  known.deletion = 'asked'
  const removed = await client.call(undefined, 'DELETE', `${path}/${made.id}`, { allow: ['not_found'] })
  demandGone(client, saving, removed)
  if (removed?.status === 204) known.deletion = 'done'
}

export async function removeSaving(client: Client, saving: Saving): Promise<void> {
  saving.deletion = 'asked'
  const path = `/api/sandboxes/${saving.box.id}/checkpoints/${saving.id}`
  const answer = await client.call(undefined, 'DELETE', path, { allow: ['not_found'] })
  if (answer?.status !== 204 && answer?.status !== 404) return
  saving.deletion = 'done'
  const { savings } = client.world
  if (savings.includes(saving)) savings.splice(savings.indexOf(saving), 1)
}

/** Only what somebody deletes may be unknown. */
function demandGone(client: Client, saving: Saving, answer: Answer | undefined): void {
  if (answer?.status !== 404 || saving.deletion !== 'none') return
  client.world.violated(`checkpoint ${saving.id} is lost: ${answer.text}`, saving.box)
}
