import assert from 'node:assert/strict'
import { readFile, readdir } from 'node:fs/promises'
import { test } from 'node:test'
import { guestFaultCodes } from './guest.ts'
import { hostdFaultCodes, hostdProtocol, hostdRequestSchema } from './hostd.ts'

const root = `${import.meta.dirname}/../..`

async function matches(text: string, pattern: RegExp): Promise<string[]> {
  return [...new Set([...text.matchAll(pattern)].flatMap(([, found]) => found ?? []))].toSorted()
}

test('guest: the codes of its source are those of the schema', async () => {
  const names = (await readdir(`${root}/guest/src`, { recursive: true })).filter((name) => name.endsWith('.rs'))
  const texts = await Promise.all(names.map((name) => readFile(`${root}/guest/src/${name}`, 'utf8')))
  const codes = await matches(texts.join('\n'), /(?:code: |(?:\)|None) => )"([a-z_]+)"/g)
  assert.deepEqual(codes, [...guestFaultCodes].toSorted())
})

test('hostd: the codes and the version of its source are those of the schema', async () => {
  const errors = await readFile(`${root}/sys/src/error.rs`, 'utf8')
  assert.deepEqual(await matches(errors, /Code::\w+ => "([a-z_]+)"/g), [...hostdFaultCodes].toSorted())
  const protocol = await readFile(`${root}/hostd/src/protocol.rs`, 'utf8')
  assert.deepEqual(await matches(protocol, /VERSION: u64 = (\d+)/g), [String(hostdProtocol)])
})

test('hostd: the samples of its tests are one valid request of each operation', async () => {
  const samples = await readFile(`${root}/hostd/src/protocol/request/samples.jsonl`, 'utf8')
  const requests = samples
    .trimEnd()
    .split('\n')
    .map((line) => hostdRequestSchema.parse(JSON.parse(line)))
  const operations = hostdRequestSchema.options.map(({ shape }) => shape.op.value)
  assert.deepEqual(requests.map(({ op }) => op).toSorted(), operations.toSorted())
})
