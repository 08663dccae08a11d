import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { type Log, silentLog } from '../../lib/log.ts'
import { eventually } from '../../lib/testing/eventually.ts'
import type { BuildEvent } from '../image.ts'
import { BuildLogs, type LogOf } from './logs.ts'

const mebibyte = 2 ** 20
const key = { key: 'org-hash' }
const of = (id: string) => ({ orgId: 'org', id })

const output = (data: string): BuildEvent => ({ event: 'build_output', step: 1, stream: 'stdout', data })
const line = (message: string): BuildEvent => ({ event: 'build_log', step: 1, type: 'run', message })

async function world(context: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), 'atoll-build-logs-'))
  context.after(() => rm(dir, { recursive: true, force: true }))
  const warnings: string[] = []
  const log: Log = { ...silentLog, warn: (_facts, message) => void warnings.push(message) }
  return { dir, logs: new BuildLogs(dir, log), warnings, log }
}

async function textOf(logs: BuildLogs, whose: LogOf): Promise<string | undefined> {
  const parts: Buffer[] = []
  const isThere = await logs.read(whose, async (text) => {
    for await (const part of text) parts.push(part)
  })
  return isThere ? Buffer.concat(parts).toString() : undefined
}

test('build log: lines and output in their order, with the end, also of a build that fails', async (context) => {
  const { logs } = await world(context)
  await logs.record(key.key, async (note) => {
    await note(line('[1/1] echo'))
    await note(output('no line end'))
    await note(line('done'))
    await logs.keep(of('img-early'), key)
  })
  await logs.keep(of('img-1'), key)
  await logs.keep(of('img-2'), of('img-1'))
  await logs.remove(key)
  const whole = '[1/1] echo\nno line end\ndone\nthe image is ready\n'
  assert.equal(await textOf(logs, of('img-1')), whole)
  assert.equal(await textOf(logs, of('img-2')), whole)
  await logs.remove(of('img-1'))
  assert.deepEqual([await textOf(logs, of('img-1')), await textOf(logs, of('img-2'))], [undefined, whole])
  const failing = logs.record('other', async () => {
    throw new Error('step 1 (run) exited with 3')
  })
  await assert.rejects(failing, /exited with 3/)
  assert.equal(await textOf(logs, { key: 'other' }), 'ended: step 1 (run) exited with 3\n')
})

test('build log: of a long one the first and the last part stay, and the gap is told', async (context) => {
  const { dir, logs } = await world(context)
  const piece = 'x'.repeat(64 * 1024 - 1)
  const pieces = (40 * mebibyte) / (piece.length + 1)
  await logs.record(key.key, async (note) => {
    for (let at = 0; at < pieces; at++) {
      await note(output(`${piece}\n`))
      const segments = await readdir(`${dir}/running/${key.key}`).catch(() => [])
      assert.ok(segments.length <= 6, 'what is left out goes while the build runs')
    }
  })
  const text = (await textOf(logs, key))!
  const [first = '', last = ''] = text.split(/\n\[\d+ bytes are left out\]\n/)
  const [, leftOut = ''] = /\[(\d+) bytes are left out\]/.exec(text) ?? []
  assert.equal(first.length, 5 * mebibyte)
  assert.ok(last.length >= 4 * mebibyte && last.length <= 5 * mebibyte, String(last.length))
  assert.equal(first.length + Number(leftOut) + last.length, 40 * mebibyte + 'the image is ready\n'.length)
  assert.ok(last.endsWith('x\nthe image is ready\n'))
})

test('build log: one that an earlier server has begun goes on where that was killed', async (context) => {
  const { dir, logs, log } = await world(context)
  const { promise: never } = Promise.withResolvers<never>()
  const { promise: begun, resolve } = Promise.withResolvers<void>()
  void logs.record(key.key, async (note) => {
    await note(output(`${'a'.repeat(6 * mebibyte)}half a li`))
    resolve()
    return await never
  })
  await begun
  const next = new BuildLogs(dir, log)
  const isWritten = async () => (await textOf(next, key))?.length === 6 * mebibyte + 9
  await eventually(isWritten, { what: 'all that was told is in the files' })
  await next.keepRunning(new Set([key.key]))
  await next.record(key.key, (note) => note(line('again')))
  assert.match(
    (await textOf(next, key))!,
    /half a li\nthe build goes on after a restart of the server\nagain\nthe image is ready\n$/,
  )
  await next.keepRunning(new Set())
  assert.equal(await textOf(next, key), undefined)
})

test('build log: one that cannot be written fails no build, and is told once', async (context) => {
  const { dir, logs, warnings } = await world(context)
  await mkdir(`${dir}/running`)
  await writeFile(`${dir}/running/${key.key}`, 'no folder')
  const made = await logs.record(key.key, async (note) => {
    await note(line('one'))
    await note(line('two'))
    return 'made'
  })
  assert.equal(made, 'made')
  assert.deepEqual(warnings, ['the log of a build could not be written'])
})

test('build log: old ones go, and those without an image', async (context) => {
  const { dir, logs } = await world(context)
  await logs.record(key.key, (note) => note(line('one')))
  for (const id of ['img-old', 'img-new', 'img-gone']) await logs.keep(of(id), key)
  const day = new Date(Date.now() - 86_400_000)
  await utimes(`${dir}/ended/org/img-old`, new Date(0), new Date(0))
  await logs.removeOld(day, async (id) => id !== 'img-gone')
  assert.deepEqual(await readdir(`${dir}/ended/org`), ['img-new'])
  assert.deepEqual(await readdir(`${dir}/running`), [key.key])
})

test('build log: an organisation has the newest two hundred', async (context) => {
  const { dir, logs } = await world(context)
  await logs.record(key.key, (note) => note(line('one')))
  for (let index = 0; index < 200; index++) {
    await logs.keep(of(`img-${index}`), key)
    await utimes(`${dir}/ended/org/img-${index}`, index, index)
  }
  await logs.keep({ orgId: 'other', id: 'img-other' }, key)
  await logs.keep(of('img-new'), key)
  const left = await readdir(`${dir}/ended/org`)
  assert.deepEqual([left.length, left.includes('img-0'), left.includes('img-1')], [200, false, true])
  assert.notEqual(await textOf(logs, { orgId: 'other', id: 'img-other' }), undefined)
})
