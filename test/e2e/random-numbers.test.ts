/** What processes draw that were alive in a checkpoint: forks must not share random numbers where that can be helped. */
import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { release } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { run } from '../../src/runtime/command.ts'
import { forkOf, takeCheckpoint, sh, startSandbox } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

/** The first kernel with the function, by architecture. */
const firstKernel = process.arch === 'x64' ? 11 : 12
const [major = 0, minor = 0] = release().split('.').map(Number)
const kernelHasIt = major > 6 || (major === 6 && minor >= firstKernel)

const lines = '/root/drawn'
/** The second draw and those after it come from a state that the first has left. */
const warm = kernelHasIt ? 'vdso warm' : 'kernel empty'
const renewed = kernelHasIt ? 'vdso empty' : 'kernel empty'

async function upload(server: AtollServer, sandboxId: string): Promise<void> {
  const folder = await mkdtemp('/var/tmp/atoll-random-')
  try {
    const program = join(folder, 'draw')
    await run(['gcc', '-O1', '-static', '-o', program, join(import.meta.dirname, 'vdso-random.c')])
    const path = `/api/sandboxes/${sandboxId}/files?path=/root/draw`
    const answer = await server.fetch(path, { method: 'PUT', body: await readFile(program) })
    assert.ok(answer.ok)
  } finally {
    await rm(folder, { recursive: true })
  }
}

/** Where the next bytes of the program come from, and the bytes. */
async function draw(server: AtollServer, sandboxId: string): Promise<{ how: string; bytes: string }> {
  const next = `
drawn() { wc --lines <${lines}; }
before=$(drawn)
pkill -USR1 --exact draw
until [ "$(drawn)" -gt "$before" ]; do sleep 0.01; done
tail --lines=1 ${lines}`
  const line = await sh(server, sandboxId, next)
  const [, how = '', bytes = ''] = /^(\w+ \w+) ([0-9a-f]{64})$/.exec(line) ?? []
  return { how, bytes }
}

const server = await AtollServer.startForFile()

for (const { how, megabytes } of [
  { how: 'at once', megabytes: '100000' },
  { how: 'lazily', megabytes: '0' },
]) {
  test(`random numbers: forks whose memory comes ${how}, and their source, draw other bytes from the vDSO's getrandom`, async () => {
    await server.stop()
    await server.restart({ ATOLL_LAZY_MEMORY_MB: megabytes })
    const source = await startSandbox(server)
    await upload(server, source)
    await sh(server, source, 'chmod +x /root/draw')
    await server.json('POST', `/api/sandboxes/${source}/exec`, { cmd: '/root/draw', args: [lines] })
    await sh(server, source, `until [ -s ${lines} ]; do sleep 0.01; done`)
    assert.equal((await draw(server, source)).how, warm)

    const checkpoint = await takeCheckpoint(server, source, 'one')
    const forks = await Promise.all([forkOf(server, checkpoint), forkOf(server, checkpoint)])
    const first = await Promise.all([source, ...forks].map((id) => draw(server, id)))
    assert.deepEqual(
      first.map((drawn) => drawn.how),
      [warm, renewed, renewed],
    )
    const second = await Promise.all([source, ...forks].map((id) => draw(server, id)))
    assert.deepEqual(
      second.map((drawn) => drawn.how),
      [warm, warm, warm],
    )
    assert.equal(new Set([...first, ...second].map(({ bytes }) => bytes)).size, 6)
  })
}
