/**
 * What a newcomer has after `npm run setup`: the default paths, no variable of ours, and the README. Whatever the other tests
 * set for their own sake, this one shows without it.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { followReadme } from '../readme.ts'
import { ShippedMachine } from './machine.ts'
import { ShippedServer } from './shipped-server.ts'

describe('as shipped', () => {
  let machine: ShippedMachine
  let key: string
  before(async () => {
    machine = await ShippedMachine.make()
  })
  after(() => machine[Symbol.asyncDispose]())

  test('the first chapters of the README work as written, and a stop leaves nothing running', async () => {
    const server = await ShippedServer.start(machine)
    key = server.freshKey
    await followReadme({ url: server.url, key }, (folder) => machine.wrap(folder))
    const doctor = await machine.run('npm', 'run', '--silent', 'doctor')
    assert.match(doctor, /^database +works +PostgreSQL \d+, in \/var\/lib\/atoll\/db$/m)
    assert.match(doctor, /^The default runtime \(runc\) works on this machine/m)
    assert.equal(await server.stop(), 0)
    assert.equal(await machine.run('sh', '-c', 'ls -d /run/atoll*'), '/run/atoll-criu.json\n')
    assert.doesNotMatch(await machine.run('ip', '-brief', 'link'), /atl/)
  })

  test('hostd runs from a start to a stop, and one that ends is started again with a line in the log', async () => {
    const server = await ShippedServer.start(machine)
    assert.equal(server.freshKey, '')
    const [first, ...more] = await server.pidsOf('atoll-hostd')
    assert.ok(first)
    assert.deepEqual(more, [])
    const { sandboxID: id } = (await server.json(key, 'POST', '/api/sandboxes', { timeout: 0 })) as {
      sandboxID: string
    }
    const command = { cmd: 'echo', args: ['here'] }
    const run = () => server.json(key, 'POST', `/api/sandboxes/${id}/exec/run`, command) as Promise<{ stdout: string }>
    assert.equal((await run()).stdout, 'here\n')
    assert.deepEqual(await server.pidsOf('atoll-hostd'), [first])
    assert.doesNotMatch(server.output, /atoll-hostd/)

    process.kill(first, 'SIGKILL')
    await server.logs('atoll-hostd was killed by SIGKILL; it is started again')
    assert.equal((await run()).stdout, 'here\n')
    const [second] = await server.pidsOf('atoll-hostd')
    assert.ok(second !== undefined && second !== first)
    await server.json(key, 'POST', '/api/sandboxes', { timeout: 0 })

    await server.kill()
    const next = await ShippedServer.start(machine)
    const answer = (await next.json(key, 'POST', `/api/sandboxes/${id}/exec/run`, command)) as { stdout: string }
    assert.equal(answer.stdout, 'here\n')
    const alive = (await next.pidsOf('atoll-hostd')).length
    assert.equal(alive, 1)
    assert.equal(await next.stop(), 0)
  })
})
