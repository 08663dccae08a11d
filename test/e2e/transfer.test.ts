import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { startSandbox } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const mib = 1024 * 1024
const block = randomBytes(mib)

/** Resident memory of the server in bytes (proc_pid_status(5), VmRSS is in kB). */
async function residentBytes(server: AtollServer): Promise<number> {
  const status = await readFile(`/proc/${server.pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024
}

async function signedUrl(server: AtollServer, sandboxId: string, kind: 'upload' | 'download'): Promise<string> {
  const path = `/api/sandboxes/${sandboxId}/files/${kind}-url`
  return ((await server.json('POST', path, { path: '/workspace/large' })) as { url: string }).url
}

/** Sends a file of so many MiB up and back down and checks every byte of it. */
async function roundTrip(server: AtollServer, sandboxId: string, mibCount: number): Promise<void> {
  const sent = createHash('sha256')
  async function* content() {
    for (let index = 0; index < mibCount; index += 1) {
      sent.update(block)
      yield block
    }
  }
  const upload = await fetch(await signedUrl(server, sandboxId, 'upload'), {
    method: 'PUT',
    body: Readable.toWeb(Readable.from(content())),
    duplex: 'half',
  })
  assert.equal(upload.status, 204)

  const received = createHash('sha256')
  const download = await fetch(await signedUrl(server, sandboxId, 'download'))
  assert.equal(download.headers.get('content-length'), String(mibCount * mib))
  for await (const chunk of download.body ?? []) received.update(chunk)
  assert.equal(received.digest('hex'), sent.digest('hex'))
}

/** Far more than the memory of the server may grow by. */
const sizeMib = 256
const growthMibMax = 64

test(`transfer: a file of ${sizeMib} MiB goes up and down through signed URLs while the memory of the server stays flat`, async () => {
  await using server = await AtollServer.start()
  const sandboxId = await startSandbox(server, { memoryMB: 512 })
  await roundTrip(server, sandboxId, sizeMib / 4)
  const before = await residentBytes(server)
  await roundTrip(server, sandboxId, sizeMib)
  const grownMib = ((await residentBytes(server)) - before) / mib
  assert.ok(grownMib < growthMibMax, `the server grew by ${grownMib.toFixed(1)} MiB`)
})
