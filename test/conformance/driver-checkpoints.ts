import assert from 'node:assert/strict'
import { isServiceError } from '../../src/errors.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import type { DriverUnderTest } from './driver.ts'
import { create, driverTests, freshId, remove, shell, specOf, succeed } from './driver-shell.ts'

const forkDepth = 3

export function checkpointConformance(under: () => DriverUnderTest): void {
  const test = driverTests(under)

  test('fork: two see the files of the checkpoint and no writes of others', async ({ driver, guest }) => {
    const [source, one, two, cp] = [await create(driver), freshId('sb'), freshId('sb'), freshId('cp')]
    // Not synced: what was written before the call is in the checkpoint.
    await succeed(guest(source), 'echo first > /workspace/a; echo first > /workspace/b; mkdir -p /srv/deep/er')
    const { sizeBytes } = await driver.checkpoint(source, cp, 'disk_only')
    assert.ok(sizeBytes > 0)
    await succeed(guest(source), 'echo source > /workspace/a; rm /workspace/b')
    await Promise.all([one, two].map((id) => driver.create(specOf(id, { from: { checkpointId: cp } }))))
    assert.equal(await succeed(guest(one), 'cat /workspace/a /workspace/b'), 'first\nfirst')
    await succeed(guest(one), 'echo one > /workspace/a; rm -r /srv/deep')
    const seen = await succeed(guest(two), 'cat /workspace/a; ls -d /srv/deep/er; hostname')
    assert.equal(seen, `first\n/srv/deep/er\n${two}`)
    assert.equal(await succeed(guest(source), 'cat /workspace/a; ls -d /srv/deep/er'), 'source\n/srv/deep/er')
    await remove(driver, source, one, two, cp)
  })

  test('fork: owners, modes, removals and replaced folders are the same', async ({ driver, guest }) => {
    const cp = freshId('cp')
    const look = `
      stat -c '%n %u:%g %a %F' / /etc /etc/passwd /root /workspace /srv/own /srv/own/* /usr/share/doc /usr/share/doc/*
      ls -A /usr/share/doc; test -e /usr/bin/curl || echo no curl; readlink /srv/own/link`
    const source = await create(driver)
    await succeed(
      guest(source),
      `mkdir /srv/own; cd /srv/own; echo x > file; chown 33:1000 file; chmod 4750 file; ln -s /etc/passwd link
       mkfifo fifo; ln file hard; touch /etc/passwd; rm -f /usr/bin/curl; rm -r /usr/share/doc; mkdir /usr/share/doc
       echo mine > /usr/share/doc/mine`,
    )
    const before = await succeed(guest(source), look)
    assert.match(before, /\/srv\/own\/file 33:1000 4750/)
    await driver.checkpoint(source, cp, 'disk_only')
    await driver.delete(source)
    const fork = await create(driver, { from: { checkpointId: cp } })
    assert.equal(await succeed(guest(fork), look), before)
    const append = 'chown 0:0 /srv/own/file && echo more >> /srv/own/file && cat /srv/own/hard'
    assert.equal(await succeed(guest(fork), append), 'x\nmore')
    await remove(driver, fork, cp)
  })

  test('inodes: no two files of a fork or a restored sandbox share a number', async ({ driver, guest }) => {
    const [cp, later] = [freshId('cp'), freshId('cp')]
    const write = (id: string, folder: string) =>
      succeed(guest(id), `mkdir /srv/${folder}; cd /srv/${folder}; for i in $(seq 50); do echo $i > $i; done`)
    const twins = (id: string) => succeed(guest(id), 'find /srv -type f -printf "%D:%i\\n" | sort | uniq -d | wc -l')
    const source = await create(driver)
    await write(source, 'inherited')
    await driver.checkpoint(source, cp, 'disk_only')
    const fork = await create(driver, { from: { checkpointId: cp } })
    await write(fork, 'own')
    await driver.checkpoint(fork, later, 'disk_only')
    const second = await create(driver, { from: { checkpointId: later } })
    await write(second, 'last')
    await driver.restore(specOf(source), cp)
    await write(source, 'own')
    for (const id of [fork, second, source]) assert.equal(await twins(id), '0')
    const replace = 'cd /srv; for i in $(seq 50); do mv own/$i inherited/$i; done; ls own'
    assert.equal(await succeed(guest(second), replace), '')
    await remove(driver, source, fork, second, cp, later)
  })

  test(`fork: works ${forkDepth} deep with every ancestor removed`, async ({ driver, guest, fixture }) => {
    const before = await fixture.trace()
    let id = await create(driver)
    for (let depth = 1; depth <= forkDepth; depth += 1) {
      await succeed(guest(id), `echo ${depth} >> /workspace/log; rm -f /workspace/only-${depth - 1}`)
      await succeed(guest(id), `echo ${depth} > /workspace/only-${depth}`)
      const cp = freshId('cp')
      await driver.checkpoint(id, cp, 'disk_only')
      await driver.delete(id)
      id = freshId('sb')
      await driver.create(specOf(id, { from: { checkpointId: cp } }))
      await driver.deleteCheckpoint(cp)
    }
    assert.equal(await succeed(guest(id), 'cat /workspace/log; ls /workspace'), '1\n2\n3\nlog\nonly-3')
    await driver.hibernate(id)
    await driver.wake(specOf(id))
    assert.equal(await succeed(guest(id), 'cat /workspace/log; ls /workspace'), '1\n2\n3\nlog\nonly-3')
    await driver.delete(id)
    assert.deepEqual(await fixture.trace(), before)
  })

  test('checkpoint: outlives its source and a restart; its removal leaves running forks alone', async () => {
    const { driver, guest, restart } = under()
    const [source, cp] = [await create(driver), freshId('cp')]
    await succeed(guest(source), 'echo kept > /workspace/a')
    await driver.checkpoint(source, cp, 'disk_only')
    await driver.delete(source)
    const fork = await create(driver, { from: { checkpointId: cp } })
    const report = await restart({ sandboxIds: [fork], checkpointIds: [cp] })
    assert.deepEqual([report.running, report.lostCheckpoints, report.removed], [[fork], [], []])

    const next = under()
    const late = await create(next.driver, { from: { checkpointId: cp } })
    await next.driver.deleteCheckpoint(cp)
    await next.driver.deleteCheckpoint(cp)
    await refuses(create(next.driver, { from: { checkpointId: cp } }), 'not_found')
    assert.equal(await succeed(next.guest(fork), 'cat /workspace/a'), 'kept')
    assert.equal(await succeed(next.guest(late), 'cat /workspace/a'), 'kept')
    await remove(next.driver, fork, late)
  })

  test('checkpoint: of a hibernated sandbox works', async ({ driver, guest }) => {
    const [source, cp] = [await create(driver), freshId('cp')]
    await succeed(guest(source), 'echo kept > /workspace/a')
    await driver.hibernate(source)
    await driver.checkpoint(source, cp, 'disk_only')
    const fork = await create(driver, { from: { checkpointId: cp } })
    assert.equal(await succeed(guest(fork), 'cat /workspace/a'), 'kept')
    await remove(driver, source, fork, cp)
  })

  test('checkpoint: an unknown sandbox, a taken id and an illegal id are refused', async () => {
    const { driver, guest, fixture } = under()
    const [source, cp] = [await create(driver), freshId('cp')]
    await driver.checkpoint(source, cp, 'disk_only')
    const before = await fixture.trace()
    await refuses(driver.checkpoint(freshId('sb'), freshId('cp'), 'disk_only'), 'not_found')
    await refuses(driver.checkpoint(source, cp, 'disk_only'), 'conflict')
    assert.throws(
      () => void driver.checkpoint(source, '../x', 'disk_only'),
      (error) => isServiceError(error, 'invalid_request'),
    )
    assert.deepEqual(await fixture.trace(), before)
    assert.equal((await shell(guest(source), 'true')).exitCode, 0)
    await remove(driver, source, cp)
  })

  test('checkpoint: a full one is refused with the reason where memory cannot be kept', async ({ driver }) => {
    if (driver.capabilities.fullCheckpoints) return
    assert.match(driver.capabilities.fullCheckpointsReason ?? '', /./)
    const id = await create(driver)
    await refuses(driver.checkpoint(id, freshId('cp'), 'full'), 'full_checkpoint_unavailable')
    await driver.delete(id)
  })
}
