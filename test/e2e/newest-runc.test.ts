/** The newest runc of Debian instead of the machine's own: from 1.2 on it finds CRIU in another way. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { forkOf, takeCheckpoint, sh, startSandbox } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

/** A folder with that runc alone. */
const bin = await new Promise<string>((resolve, reject) => {
  execFile('bash', ['scripts/test/newest-runc.sh'], (error, stdout, stderr) => {
    const needed = 'this test needs patchelf and, once a week, a mirror of Debian sid'
    if (error === null) resolve(stdout.trim())
    else reject(new Error(`${needed}; scripts/test/newest-runc.sh says: ${stderr.trim().split('\n').at(-1)}`))
  })
})

test('newest runc: a sandbox is checkpointed, forked, hibernated and woken with its processes, and doctor says so', async () => {
  await using server = await AtollServer.start({ env: { PATH: `${bin}:${process.env['PATH']}` } })
  const source = await startSandbox(server)
  await server.json('POST', `/api/sandboxes/${source}/exec`, { cmd: 'sleep', args: ['4711'] })
  const pid = await sh(server, source, 'pgrep --exact sleep')
  assert.match(pid, /^\d+$/)
  const fork = await forkOf(server, await takeCheckpoint(server, source, 'one'))
  for (const id of [source, fork]) assert.equal(await sh(server, id, 'pgrep --exact sleep'), pid)
  await server.json('POST', `/api/sandboxes/${fork}/hibernate`)
  await server.json('POST', `/api/sandboxes/${fork}/wake`)
  assert.equal(await sh(server, fork, 'pgrep --exact sleep'), pid)

  const { status, output } = await server.program('src/server/doctor.ts', [])
  assert.equal(status, 0, output)
  const [, major = '', minor = ''] = /^runc +works +(\d+)\.(\d+)\S*; a container /m.exec(output) ?? []
  assert.ok(Number(major) > 1 || Number(minor) >= 2, `a runc of 1.2 or newer is tried, not ${major}.${minor}`)
  for (const row of ['CRIU', 'lazy memory', 'start', 'fork', 'wake']) {
    assert.match(output, new RegExp(`^${row} +works `, 'm'))
  }
})
