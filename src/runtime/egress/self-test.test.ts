import assert from 'node:assert/strict'
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { resultOf } from '../self-test.ts'
import { egressCheck } from './self-test.ts'

const authority = `'{"certificate":"-----BEGIN CERTIFICATE-----","key":"-----BEGIN PRIVATE KEY-----"}'`

/** What the check finds where the program is this shell script, or is not there. */
async function checked(script?: string) {
  const imageDir = await mkdtemp(join(tmpdir(), 'atoll-egress-check-'))
  try {
    if (script !== undefined) {
      const program = join(imageDir, 'egress', 'atoll-egress')
      await mkdir(join(imageDir, 'egress'))
      await writeFile(program, `#!/bin/sh\n${script}\n`)
      await chmod(program, 0o755)
    }
    return await resultOf(egressCheck, { imageDir, dataDir: imageDir })
  } finally {
    await rm(imageDir, { recursive: true })
  }
}

test('the egress check tells a missing program, one that fails, and one that does not listen', async () => {
  const missing = await checked()
  assert.equal(missing.state, 'missing')
  assert.equal(missing.advice, 'npm run setup')
  const broken = await checked('echo a reason >&2; exit 1')
  assert.equal(broken.state, 'fails')
  assert.match(broken.found, /a reason/)
  const deaf = await checked(`[ "$1" = authority ] && { echo ${authority}; exit; }
    read frame; echo '{"op":"error","seq":1,"message":"cannot listen"}'; cat >/dev/null`)
  assert.equal(deaf.state, 'fails')
  assert.match(deaf.found, /cannot listen/)
})

test('the egress check works with a program that makes an authority and says that it is ready', async () => {
  const { state, found } = await checked(`[ "$1" = authority ] && { echo ${authority}; exit; }
    read frame; echo '{"op":"ok","seq":1}'; echo '{"op":"ready"}'; cat >/dev/null`)
  assert.equal(state, 'works', found)
})
