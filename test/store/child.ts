/**
 * Uses a store in a process of its own, until it is killed or done: `node child.ts <mode> <location> [argument]`. A location is the
 * URL of a database.
 */
import { writeSync } from 'node:fs'
import { spawn, type ChildProcessByStdio } from 'node:child_process'
import { once } from 'node:events'
import type { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { openStore } from '../../src/store/index.ts'
import type { SandboxStore } from '../../src/sandbox/index.ts'
import { messageOf, sandboxOf } from './kit.ts'
import { migrateOn, noteMigrations, openBackend } from './notes.ts'

const modes = {
  /** Opens a database and holds it. */
  async hold(location: string) {
    await openStore(location)
    print('held')
  },
  /** Opens a store, sends a query and ends without closing the store. */
  async query(location: string) {
    const store = await openStore(location)
    print('opened')
    void store.ping().then(() => print('answered'))
  },
  /** Writes events of a session and prints the number of each after the store has acknowledged it. */
  async write(location: string, sessionId: string) {
    const store = await openStore(location)
    for (;;) {
      const message = messageOf('kept')
      const addStream = [{ type: 'assistant', filler: 'x'.repeat(2000) }]
      const committed = await store.sessions.commit(sessionId, { addStream, addMessages: [message] })
      print(`${committed?.lastSequence} ${message.id}`)
    }
  },
  /** Starts, hibernates and wakes sandboxes of an organisation, several at once, and prints each state that the store has acknowledged. */
  async live(location: string, orgId: string) {
    const { sandboxes } = await openStore(location)
    const live = async () => {
      for (;;) {
        const { id } = await newSandboxOf(sandboxes, orgId)
        for (const status of ['running', 'hibernated', 'running', 'stopped'] as const) {
          await sandboxes.updateSandbox(id, { status })
          print(`${id} ${status}`)
        }
      }
    }
    await Promise.all([live(), live(), live(), live()])
  },
  /** Runs the migrations of `store-notes.ts` and prints the key after which each batch begins. */
  async migrate(location: string) {
    const backend = await openBackend(location)
    await migrateOn(backend, { migrations: noteMigrations((after) => print(after ?? 'start')) })
    await backend.stop()
  },
}

async function newSandboxOf(sandboxes: SandboxStore, orgId: string) {
  const sandbox = sandboxOf(orgId, { status: 'creating' })
  await sandboxes.insertSandbox(sandbox)
  return sandbox
}

export function startChild(
  mode: keyof typeof modes,
  ...parameters: string[]
): ChildProcessByStdio<null, Readable, null> {
  const file = fileURLToPath(import.meta.url)
  return spawn(process.execPath, [file, mode, ...parameters], { stdio: ['ignore', 'pipe', 'inherit'] })
}

export async function killed(child: ReturnType<typeof startChild>): Promise<void> {
  child.kill('SIGKILL')
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
}

function print(line: string): void {
  writeSync(1, `${line}\n`)
}

if (import.meta.main) {
  const [mode = '', location = '', parameter = ''] = process.argv.slice(2)
  await modes[mode as keyof typeof modes](location, parameter)
}
