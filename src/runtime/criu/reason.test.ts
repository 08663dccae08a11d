import assert from 'node:assert/strict'
import { test } from 'node:test'
import { faultIn } from './reason.ts'

const frame = (errors: string) => `Warn  (criu/x.c:1): w
Error (criu/util.c:2): rlimit: Can't setup RLIMIT_NOFILE for self
${errors}
Error (criu/cr-dump.c:3): Dumping FAILED.
`

test('CRIU reason: known messages become a sentence', () => {
  const { reason } = faultIn(
    frame("Error (criu/files-reg.c:9): Can't dump ghost file /tmp/g of 300000000 size, increase limit"),
    [],
  )
  assert.equal(reason, 'an open file of 300000000 bytes was removed, which is too large to be kept')
})

test('CRIU reason: any other is the first error, bounded, printable, and without folders of the host', () => {
  const { reason, noSpace } = faultIn(frame(`Error (criu/a.c:1): odd /run/atoll-1/pool/x\u0007y ${'z'.repeat(900)}`), [
    '/run/atoll-1',
  ])
  assert.match(reason, /^odd \/pool\/x y z+$/)
  assert.equal(reason.length, 300)
  assert.equal(noSpace, false)
  assert.equal(faultIn('', []).reason, 'CRIU gave no reason')
})

test('CRIU reason: a restore killed for memory and a full disk are recognised anywhere in the log', () => {
  const killed = (error: string) => faultIn(frame(`Error (criu/cr-restore.c:1): 9 ${error}`), []).killed
  assert.deepEqual([killed('killed by signal 9: Killed'), killed('exited, status=1')], [true, false])
  const errors = 'Error (criu/page-xfer.c:5): a\nError (criu/page-xfer.c:6): Unable to spill: No space left on device'
  assert.equal(faultIn(frame(errors), []).noSpace, true)
})
