/** The record of a sandbox and the machine after `kill -9` of the server at named steps of a change of sizes. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { oneOf } from '../../src/lib/testing/thorough.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { sh, startSandbox } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const runc = (await promisify(execFile)('sh', ['-c', 'command -v runc'])).stdout.trim()

/** First in the server's PATH: a runc that stands still in a change of limits at the step that the file `hold` names. */
const programs = await mkdtemp('/var/tmp/atoll-programs-')
after(() => rm(programs, { recursive: true }))
const [hold, held] = [join(programs, 'hold'), join(programs, 'held')]
await writeFile(
  join(programs, 'runc'),
  `#!/bin/sh
case " $* " in *" update "*) ;; *) exec ${runc} "$@" ;; esac
[ -e ${hold} ] || exec ${runc} "$@"
stand() { echo $$ > ${held}.new; mv ${held}.new ${held}; exec sleep 1000; }
read -r resources
case $(cat ${hold}) in
  half) bytes=$(echo "$resources" | sed 's/.*"memory":{"limit":\\([0-9]*\\).*/\\1/')
    for id; do :; done
    ${runc} "$1" "$2" update --memory $bytes --memory-swap $bytes $id ;;
  whole) echo "$resources" | ${runc} "$@" ;;
esac
stand
`,
  { mode: 0o755 },
)

const server = await AtollServer.startForFile({ env: { PATH: `${programs}:${process.env['PATH']}` } })
const names = new HostNames(server.dataDir)

interface Sizes {
  memoryMB: number
  cpuCount: number
}

const steps = ['none', 'half', 'whole'] as const
type Step = (typeof steps)[number]

/** Kills the server when a change of limits has come to this step, and starts it again once `meanwhile` has ended. */
async function killedAt(step: Step, change: () => Promise<unknown>, meanwhile = async () => {}): Promise<void> {
  await rm(held, { force: true })
  await writeFile(`${hold}.new`, step)
  await rename(`${hold}.new`, hold)
  const sent = change().then(
    () => assert.fail('the change was answered'),
    (error: unknown) => assert.ok(error instanceof TypeError, String(error)),
  )
  let pid = NaN
  const reached = async () => {
    while (!((pid = Number(await readFile(held, 'utf8').catch(() => 'none'))) > 0)) await sleep(10)
  }
  await Promise.race([reached(), sent])
  await rm(hold)
  await meanwhile()
  await server.kill()
  await sent
  process.kill(pid, 'SIGKILL')
  await server.restart()
}

async function recorded(id: string): Promise<Sizes> {
  const { memoryMB, cpuCount, status } = (await server.json('GET', `/api/sandboxes/${id}`)) as Sizes & {
    status: string
  }
  assert.equal(status, 'running')
  return { memoryMB, cpuCount }
}

/** By the files of its control group, of either version. */
async function inForce(id: string): Promise<Sizes> {
  const group = names.cgroup(id)
  const first = async (...files: string[]) => {
    for (const file of files) {
      const text = await readFile(`/sys/fs/cgroup/${file}`, 'utf8').catch(() => undefined)
      if (text !== undefined) return text
    }
    return assert.fail(`none of ${files.join(', ')}`)
  }
  const memory = await first(`${group}/memory.max`, `memory${group}/memory.limit_in_bytes`)
  const quota = await first(`${group}/cpu.max`, `cpu${group}/cpu.cfs_quota_us`, `cpu,cpuacct${group}/cpu.cfs_quota_us`)
  return { memoryMB: Number(memory) / 2 ** 20, cpuCount: Number.parseInt(quota, 10) / 100_000 }
}

/** By the files that it sees. */
async function seen(id: string): Promise<Sizes> {
  const [memory, cpu = ''] = (await sh(server, id, 'cd /sys/fs/cgroup/sandbox && cat memory.max cpu.max')).split(/\n+/)
  return { memoryMB: Number(memory) / 2 ** 20, cpuCount: Number.parseInt(cpu, 10) / 100_000 }
}

async function assertAgreed(id: string, expected: Sizes): Promise<void> {
  const all = { recorded: await recorded(id), inForce: await inForce(id), seen: await seen(id) }
  assert.deepEqual(all, { recorded: expected, inForce: expected, seen: expected })
}

const changes: Record<string, (id: string) => Promise<unknown>> = {
  'PUT …/limits that grows': (id) =>
    server.json('PUT', `/api/sandboxes/${id}/limits`, { memoryMB: 3000, cpuPercent: 200 }),
  'PUT …/limits that shrinks': (id) =>
    server.json('PUT', `/api/sandboxes/${id}/limits`, { memoryMB: 512, cpuPercent: 50 }),
  'POST …/scale': (id) => server.json('POST', `/api/sandboxes/${id}/scale`, { memoryMB: 4200 }),
}

for (const [name, change] of Object.entries(changes)) {
  for (const step of oneOf(steps)) {
    test(`sizes: record and machine agree when the server is killed in ${name}, and the machine has changed: ${step}`, async () => {
      const sizes = { memoryMB: 1024, cpuCount: 1 }
      const id = await startSandbox(server, sizes)
      await killedAt(step, () => change(id))
      await assertAgreed(id, sizes)
      const { memoryMB, cpuCount } = (await change(id)) as Sizes
      assert.ok(memoryMB !== sizes.memoryMB)
      await assertAgreed(id, { memoryMB, cpuCount: cpuCount ?? (await recorded(id)).cpuCount })
      await server.json('DELETE', `/api/sandboxes/${id}`)
    })
  }
}

test('sizes: a sandbox that has used the memory of a change that was cut off keeps it, and lives', async () => {
  const id = await startSandbox(server, { memoryMB: 512, cpuCount: 1 })
  const program = `b = bytearray(700 << 20); open('/tmp/held', 'w').close(); input()`
  const use = async () => {
    // The old server is told, and lives on until it is killed.
    await sh(
      server,
      id,
      `(sleep 1000 | python3 -c "${program}") >/dev/null 2>&1 & until [ -e /tmp/held ]; do sleep 0.05; done`,
    )
  }
  await killedAt('whole', () => server.json('PUT', `/api/sandboxes/${id}/limits`, { memoryMB: 3000 }), use)
  await assertAgreed(id, { memoryMB: 3000, cpuCount: 1 })
  assert.equal(await sh(server, id, 'pgrep -c python3'), '1')
  await server.json('DELETE', `/api/sandboxes/${id}`)
})
