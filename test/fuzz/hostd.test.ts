import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import fc from 'fast-check'
import { hostdAnswerSchema, hostdFaultSchema, hostdProtocol } from '../../src/protocol/hostd.ts'
import { HostdProcess } from '../../src/runtime/hostd/hostd-process.ts'

const imageDir = process.env['ATOLL_IMAGE_DIR'] || '/var/lib/atoll/images'
const tool = join(imageDir, 'hostd/atoll-hostd')
const folder = await mkdtemp(join(tmpdir(), 'atoll-hostd-fuzz-'))
after(() => rm(folder, { recursive: true }))

const lines = await readFile(`${import.meta.dirname}/../../hostd/src/protocol/request/samples.jsonl`, 'utf8')
const samples = lines
  .trimEnd()
  .split('\n')
  .map((line) => JSON.parse(line) as Record<string, unknown>)

/** Requests that are none: a field is missing, of another type, or one too many. What is left may never be done. */
const broken = fc
  .tuple(fc.constantFrom(...samples), fc.nat(), fc.constantFrom('missing', 'typed', 'added'), fc.jsonValue())
  .map(([sample, index, fault, value]) => {
    const names = Object.keys(sample).filter(
      (name) => !['hide', 'keep', 'held', 'target', 'part', 'process'].includes(name),
    )
    const name = names[index % names.length] ?? 'op'
    if (fault === 'missing') return Object.fromEntries(Object.entries(sample).filter(([key]) => key !== name))
    if (fault === 'typed') return { ...sample, [name]: { not: value } }
    return { ...sample, unknown: value }
  })

function frame(value: object): Buffer {
  const text = Buffer.from(JSON.stringify(value))
  const head = Buffer.alloc(4)
  head.writeUInt32BE(text.length)
  return Buffer.concat([head, text])
}

test('hostd: what is no request is refused by name, and the next one is heard', async () => {
  const hostd = spawn(tool, ['serve', '--socket', join(folder, 'hostd.sock')], { stdio: ['pipe', 'pipe', 'inherit'] })
  let buffered = Buffer.alloc(0)
  const read = async (): Promise<Buffer> => {
    for (;;) {
      const length = buffered.length >= 4 ? buffered.readUInt32BE(0) : Infinity
      if (buffered.length >= 4 + length) {
        const answer = buffered.subarray(4, 4 + length)
        buffered = buffered.subarray(4 + length)
        return answer
      }
      const [chunk] = (await once(hostd.stdout, 'data')) as [Buffer]
      buffered = Buffer.concat([buffered, chunk])
    }
  }
  hostd.stdin.write(frame({ protocol: hostdProtocol }))
  await read()
  let id = 0
  await fc.assert(
    fc.asyncProperty(broken, async (request) => {
      id += 1
      hostd.stdin.write(frame({ ...request, id }))
      const answer = await read()
      const end = answer.indexOf(0x0a)
      const head = hostdAnswerSchema.parse(JSON.parse(answer.toString('utf8', 0, end)))
      assert.deepEqual(head, { id, status: 'exited', code: 1, stdoutBytes: 0 })
      const { code } = hostdFaultSchema.parse(JSON.parse(answer.toString('utf8', end + 1)))
      assert.equal(code, 'invalid_request')
    }),
    { numRuns: 500 },
  )
  hostd.stdin.end()
  assert.deepEqual(await once(hostd, 'exit'), [0, null])
})

test('hostd: another version of the protocol ends it', async () => {
  const hostd = spawn(tool, ['serve', '--socket', join(folder, 'other.sock')], { stdio: ['pipe', 'ignore', 'ignore'] })
  hostd.stdin.write(frame({ protocol: hostdProtocol + 1 }))
  assert.deepEqual(await once(hostd, 'exit'), [1, null])
})

test('server: a hostd that answers nonsense, or speaks another version, is ended', async () => {
  const program = join(folder, 'nonsense')
  await writeFile(program, `#!/bin/sh\ncat '${folder}/answer'\nexec cat >/dev/null\n`, { mode: 0o755 })
  const refused = async (answer: Uint8Array) => {
    await writeFile(join(folder, 'answer'), answer)
    await assert.rejects(new HostdProcess(program, '/none', { PATH: process.env['PATH'] ?? '' }).serving)
  }
  const framed = fc.jsonValue().map((value) => frame({ value }))
  const long = fc.uint8Array({ minLength: 4, maxLength: 60 }).map((bytes) => Uint8Array.of(255, ...bytes))
  await fc.assert(fc.asyncProperty(fc.oneof(framed, long), refused), { numRuns: 30 })
  await refused(frame({ protocol: hostdProtocol + 1, version: '9.9.9' }))
})
