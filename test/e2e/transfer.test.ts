import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { test } from 'node:test'
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
async function roundTrip(server: AtollServer, sandboxId: string, sizeMib: number): Promise<void> {
  const sent = createHash('sha256')
  async function* content() {
    for (let index = 0; index < sizeMib; index += 1) {
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
  assert.equal(download.headers.get('content-length'), String(sizeMib * mib))
  for await (const chunk of download.body ?? []) received.update(chunk)
  assert.equal(received.digest('hex'), sent.digest('hex'))
}

test('a file of 1 GiB goes up and down through signed URLs while the memory of the server stays flat', async () => {
  await using server = await AtollServer.start()
  const sandbox = (await server.json('POST', '/api/sandboxes', { diskMB: 4096, memoryMB: 512 })) as {
    sandboxID: string
  }
  await roundTrip(server, sandbox.sandboxID, 256)
  const before = await residentBytes(server)
  await roundTrip(server, sandbox.sandboxID, 1024)
  const grownMib = ((await residentBytes(server)) - before) / mib
  assert.ok(grownMib < 64, `the server grew by ${grownMib.toFixed(1)} MiB`)
})
