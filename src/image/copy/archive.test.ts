import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { test } from 'node:test'
import { gzipSync } from 'node:zlib'
import { tarEntry, tarOf } from '../../../test/support/tar.ts'
import type { BuildSandbox } from '../build/sandbox.ts'
import { tarIn } from './archive.ts'

/** The tar in a file. No sandbox is needed for what Node decompresses. */
async function found(file: Buffer): Promise<Buffer | undefined> {
  const tar = await tarIn(() => Readable.from([file]), {} as BuildSandbox)
  return tar && (await buffer(tar))
}

test('archives of ADD: a tar is found, also a compressed one', async () => {
  const tar = tarOf(tarEntry('a', 'content'))
  for (const file of [tar, gzipSync(tar)]) assert.deepEqual(await found(file), tar)
})

test('archives of ADD: a file that begins with zeros is none, nor is text, whatever it is compressed with', async () => {
  const disk = Buffer.concat([Buffer.alloc(32_768), Buffer.from('CD001')])
  for (const file of [disk, Buffer.alloc(1024), Buffer.from('text'.repeat(500)), Buffer.alloc(0)])
    for (const stored of [file, gzipSync(file)]) assert.equal(await found(stored), undefined)
})
