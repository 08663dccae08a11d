import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import fc from 'fast-check'
import { Subnet } from '../network/index.ts'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { hostAddresses, readResolvers, readRoots } from './host-facts.ts'
import { without } from './networks.ts'
import { Surroundings } from './surroundings.ts'

test('resolvers: those of the file, as addresses of sockets; the host itself when there are none', async (t) => {
  const file = `${await temporaryFolder(t)}/resolv.conf`
  assert.deepEqual(readResolvers(file), ['127.0.0.1:53'])
  await writeFile(
    file,
    '# nameserver 9.9.9.9\nsearch a\nnameserver 1.1.1.1\n nameserver\t2606:4700::1111\nnameserver fe80::1%eth0\nnameserver 1.1.1.1\nnameserver x\n',
  )
  assert.deepEqual(readResolvers(file), ['1.1.1.1:53', '[2606:4700::1111]:53'])
  await writeFile(file, Array.from({ length: 20 }, (_, index) => `nameserver 10.0.0.${index}`).join('\n'))
  assert.equal(readResolvers(file).length, 8)
})

test('roots: files that are there count together, and one that is not is told', async (t) => {
  const file = `${await temporaryFolder(t)}/extra.pem`
  await writeFile(file, 'of the operator')
  const said: string[] = []
  const roots = await readRoots([file, undefined, '', '/no/such/file'], (message) => said.push(message))
  assert.match(roots, /of the operator$/)
  assert.match(said.join('\n'), /\/no\/such\/file/)
})

test('networks: what is left of blocks without others', () => {
  assert.deepEqual(without(['10.0.0.0/8'], []), ['10.0.0.0/8'])
  assert.deepEqual(without(['10.0.0.0/30'], ['10.0.0.1/32']), ['10.0.0.0/32', '10.0.0.2/31'])
  assert.deepEqual(without(['10.1.0.0/16', '192.168.1.7/24'], ['10.0.0.0/8', '192.168.2.0/24']), ['192.168.1.0/24'])
  assert.deepEqual(without(['0.0.0.0/0'], ['128.0.0.0/1']), ['0.0.0.0/1'])
  const block = fc
    .tuple(fc.nat({ max: 255 }), fc.integer({ min: 24, max: 32 }))
    .map(([last, prefix]) => `10.0.0.${last}/${prefix}`)
  const has = (blocks: readonly string[], last: number) =>
    blocks.some((one) => {
      const [, of = '', prefix = ''] = /\.(\d+)\/(\d+)$/.exec(one) ?? []
      const size = 2 ** (32 - Number(prefix))
      return Math.floor(Number(of) / size) === Math.floor(last / size)
    })
  fc.assert(
    fc.property(fc.array(block, { maxLength: 4 }), fc.array(block, { maxLength: 4 }), (networks, others) => {
      const left = without(networks, others)
      for (let last = 0; last < 256; last += 1) {
        assert.equal(has(left, last), has(networks, last) && !has(others, last))
      }
    }),
  )
})

test('surroundings: the host and other sandboxes are denied, and no private network opens them', async () => {
  const subnet = new Subnet('10.200.0.0/16')
  const settings = { privateNetworks: ['10.0.0.0/8', '127.0.0.0/8'], resolvers: ['192.0.2.1:53'] }
  const surroundings = new Surroundings(settings, subnet, () => undefined)
  assert.equal(surroundings.hasChanged(), false)
  // At the same moment: other servers of this machine come and go.
  const addresses = hostAddresses()
  const frame = await surroundings.startFrame()
  assert.equal(surroundings.hasChanged(), false)
  for (const address of addresses) assert.ok(frame.denied.includes(`${address}/32`))
  assert.ok(frame.denied.includes('10.200.0.0/16') && frame.denied.includes('10.0.0.0/8'))
  assert.deepEqual(without(['10.200.0.0/16', '127.0.0.0/8'], frame.private), ['10.200.0.0/16', '127.0.0.0/8'])
  assert.equal(frame.listen, '10.200.0.1:4182')
  assert.deepEqual(frame.own_names, { 'gateway.atoll.internal': '10.200.0.1' })
  assert.deepEqual(frame.resolvers, ['192.0.2.1:53'])
})
