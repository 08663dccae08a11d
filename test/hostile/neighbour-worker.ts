/** Calls as a tenant in a thread of its own, which no other work of the tests delays, and tells how long each call took. */
import { parentPort, workerData } from 'node:worker_threads'
import { setTimeout as sleep } from 'node:timers/promises'
import { exchange } from '../support/api-client.ts'

const pauseMs = 20
const { url, key } = workerData as { url: string; key: string }
let times: number[] = []

parentPort?.on('message', () => {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- that of a window has one
  parentPort?.postMessage(times)
  times = []
})

for (;;) {
  const before = performance.now()
  const answer = await exchange(url, { headers: { 'x-api-key': key } }).catch(() => undefined)
  // The server has ended, as the tests have.
  if (answer === undefined) break
  times.push(performance.now() - before)
  await sleep(pauseMs)
}
