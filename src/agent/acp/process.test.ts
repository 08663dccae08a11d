import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { setImmediate as nextTick } from 'node:timers/promises'
import { AcpProcess } from './process.ts'

const folder = mkdtempSync(join(tmpdir(), 'atoll-acp-'))
after(() => rmSync(folder, { recursive: true }))
process.env['TMPDIR'] = folder

test('lines that are no message are left out, and what a program says after nobody listens harms nobody', async () => {
  const message = '{"jsonrpc":"2.0","method":"a"}'
  const script = `echo welcome; echo '${message}'; read line; echo '${message}'; echo '${message}'`
  const program = new AcpProcess(['sh', '-c', script], folder, process.env)
  const reader = program.stream.readable.getReader()
  assert.deepEqual((await reader.read()).value, JSON.parse(message))
  await reader.cancel()
  const writer = program.stream.writable.getWriter()
  await writer.write({ jsonrpc: '2.0', method: 'go on' })
  assert.match(await program.ended, /status 0/)
  await nextTick()
})
