import assert from 'node:assert/strict'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import { create, shell, succeed } from './driver-shell.ts'
import type { DriverUnderTest } from './driver.ts'

export const counterPort = 3000
const replWaitMs = 120_000

const envs = { PATH: '/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', HOME: '/root', TERM: 'dumb' }

const counter = `
let count = 0
require('node:http').createServer((_, response) => response.end(String(++count))).listen(${counterPort})`

/** A running sandbox with the load. */
export async function createLoaded({ driver, guest }: Pick<DriverUnderTest, 'driver' | 'guest'>): Promise<string> {
  const id = await create(driver)
  await startLoad(guest(id))
  return id
}

/** What a checkpoint must keep: a server that counts in memory, a Python prompt, a loop that writes what it remembers. */
export async function startLoad(guest: Guest): Promise<void> {
  await guest.spawn({ id: 'counter', argv: ['/usr/local/bin/node', '-e', counter], envs })
  await guest.spawn({ id: 'repl', argv: ['/usr/bin/python3', '-q'], envs, pty: { cols: 80, rows: 24 } })
  const loop = 'n=0; while :; do n=$((n+1)); echo $n > /workspace/loop; sleep 0.05; done'
  await guest.spawn({ id: 'loop', argv: ['/bin/bash', '-c', loop], envs })
  assert.equal(await count(guest), 1)
}

/** One more than the last time, as long as the server lives. */
export async function count(guest: Guest): Promise<number> {
  const ask = `curl --silent --fail --max-time 20 http://127.0.0.1:${counterPort}/`
  return Number(await succeed(guest, `for _ in $(seq 200); do ${ask} && exit; sleep 0.05; done; exit 1`))
}

/** Types an expression at the Python prompt and returns what it prints. */
export async function evaluate(guest: Guest, expression: string): Promise<string> {
  const attachment = await guest.attach('repl')
  const late = setTimeout(() => attachment.close(), replWaitMs)
  try {
    const mark = Math.random().toString(36).slice(2)
    await attachment.write(Buffer.from(`print("${mark}", ${expression}, "end")\n`))
    let said = ''
    for await (const event of attachment) {
      if (event.type === 'output') said += event.data.toString()
      // The terminal repeats what was typed, with quotes around the mark.
      const answer = new RegExp(`\\n${mark} (.*) end\\r`).exec(said)?.[1]
      if (answer !== undefined) return answer
    }
    throw new Error(`the prompt said ${JSON.stringify(said)}`)
  } finally {
    clearTimeout(late)
    attachment.close()
  }
}

/** Whether the loop counts on from where it was. Each of its writes leaves the file empty for a moment. */
export async function loops(guest: Guest): Promise<boolean> {
  const look = 'until read -r now < /workspace/loop; do sleep 0.01; done'
  const wait = `for _ in $(seq 200); do ${look}; test $now -gt $before && exit; sleep 0.05; done; exit 1`
  return (await shell(guest, `${look}; before=$now; test $before -gt 0 || exit 1; ${wait}`)).exitCode === 0
}
