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

test('CRIU reason: what the table of kept objects calls refused has a sentence each', () => {
  const told = {
    'zombie 6632 (comm python3) found while seizing': 'a process is under a debugger',
    'The packetized mode for pipes is not supported yet': 'a pipe in packet mode (O_DIRECT) is open',
    'unix: Non-empty write queue on an in-flight socket 0x505ec7':
      'a connection to a unix socket has data and is waiting to be accepted',
    'skqueue: Control messages in queue, not supported': 'a unix socket holds credentials that were not received',
    'inet: Urgent byte in queue': 'a connection holds an urgent byte (MSG_OOB) that was not received',
    'netlink: The socket has data to read': 'a netlink socket holds messages that were not read',
    "fsnotify: \tCan't dump that handle": 'something is watched (inotify) that was removed or lies in /proc or /sys',
    "fsnotify: Can't find suitable path for handle (dev 0xc5 ino 0x2): -2":
      'something is watched (inotify) that was removed or lies in /proc or /sys',
    "Can't lookup mount=1034 for fd=3 path=/queue":
      'an open file belongs to no mount of the sandbox, as a POSIX message queue or memory in huge pages does not',
    "Can't dump file 3 of that type [600] (anon anon_inode:[landlock-ruleset])":
      'an open file is of a kind that cannot be kept: landlock-ruleset',
  }
  for (const [error, sentence] of Object.entries(told)) {
    assert.equal(faultIn(frame(`Error (criu/a.c:1): ${error}`), []).reason, sentence)
  }
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

test('CRIU reason: what lies in the machine may pass, what lies in the images does not', () => {
  const mayPass = (error: string) => faultIn(frame(error), []).mayPass
  assert.equal(mayPass("Error (criu/files-reg.c:1): Can't open file /etc/hosts on restore"), false)
  assert.equal(mayPass("Error (criu/image.c:1): Magic doesn't match for pstree.img"), false)
  assert.equal(mayPass("Error (criu/cr-restore.c:1): Can't fork for 9: Cannot allocate memory"), true)
  assert.equal(mayPass('Error (criu/action-scripts.c:1): One of more action scripts failed'), true)
  assert.equal(mayPass('Error (criu/cr-restore.c:1): 9 exited, status=1'), true)
})

test('CRIU reason: a restore killed for memory and a full disk are recognised anywhere in the log', () => {
  const killed = (error: string) => faultIn(frame(`Error (criu/cr-restore.c:1): 9 ${error}`), []).killed
  assert.deepEqual([killed('killed by signal 9: Killed'), killed('exited, status=1')], [true, false])
  const errors = 'Error (criu/page-xfer.c:5): a\nError (criu/page-xfer.c:6): Unable to spill: No space left on device'
  assert.equal(faultIn(frame(errors), []).noSpace, true)
})
