import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import type { SandboxExit } from '../../sandbox/ports/runtime-driver.ts'
import type { ProcessIdentity } from '../process.ts'
import { livenessTimes } from './liveness.ts'
import { Supervisor } from './supervisor.ts'

/** A supervisor of `sb-1`, which runs until `world` says that it has ended; nothing of it can be removed. */
function makeSupervisor(t: TestContext) {
  const processes = new Map<string, ProcessIdentity>([['sb-1', { pid: 10, startTicks: 1 }]])
  const world = { ended: [] as string[], looks: 0, exits: [] as SandboxExit[], logged: [] as string[] }
  const options = {
    cgroups: { oomKills: async () => 0 },
    onExit: (exit: SandboxExit) => world.exits.push(exit),
    running: {
      onEnd: () => undefined,
      runs: processes,
      isUp: () => false,
      ended: () => {
        world.looks += 1
        return world.ended.filter((id) => processes.has(id))
      },
      stop: async (id: string) => {
        processes.delete(id)
        throw new Error('a mount is busy')
      },
    },
    lazy: { ended: () => [], settle: async () => undefined },
    inventory: { sandboxes: { get: () => undefined } },
    names: { cgroup: (id: string) => id },
    network: {
      tendForwarder: async () => undefined,
      tendRules: async () => undefined,
      hostFirewall: { tend: async () => undefined },
    },
    egress: { tend: async () => undefined },
    pool: { tend: async () => undefined },
    locks: new KeyedMutex(),
    livenessTimes,
    log: (message: string) => world.logged.push(message),
  }
  const supervisor = new Supervisor(options as unknown as ConstructorParameters<typeof Supervisor>[0])
  supervisor.start()
  t.after(() => supervisor.stop())
  return { supervisor, world }
}

test('supervisor: an exit is reported even if something cannot be removed', async (t) => {
  const { world } = makeSupervisor(t)
  world.ended = ['sb-1']
  while (world.logged.length === 0) await sleep(5)
  assert.match(world.logged.join('\n'), /attending to sb-1 failed.*a mount is busy/)
  assert.deepEqual(
    world.exits.map((exit) => [exit.sandboxId, exit.reason]),
    [['sb-1', 'runtime_failed']],
  )
})

test('probeNow: many calls cause no look at any sandbox', (t) => {
  const { supervisor, world } = makeSupervisor(t)
  for (let count = 0; count < 1_000; count += 1) supervisor.probeNow('sb-1')
  assert.equal(world.looks, 0)
})
