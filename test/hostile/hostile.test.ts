/**
 * What a hostile tenant tries, against the server as shipped: each is refused, contained or served, and its neighbour works on. With
 * `ATOLL_HOSTILE=1` (`npm run test:hostile`) the slow ones too, and the time of the neighbour's calls and the memory of the server are judged.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { bodyTries } from './bodies.ts'
import { escapeTries } from './escapes.ts'
import { fileTries } from './files.ts'
import { Neighbour } from './neighbour.ts'
import { requestTries } from './requests.ts'
import { slowTries } from './slow.ts'
import { strangerTries } from './strangers.ts'
import { openTarget, residentBytes } from './target.ts'

const isWhole = process.env['ATOLL_HOSTILE'] === '1'
/** Over all tries. */
const residentBytesMax = { server: 600 * 2 ** 20, helper: 100 * 2 ** 20 }

const areas = {
  'input that is wrong or grows': bodyTries,
  'a stranger’s key': strangerTries,
  'bytes on the wire': requestTries,
  'files and links': fileTries,
  'root inside': escapeTries,
  'slow peers and crowds': slowTries,
}

const target = await openTarget()
const neighbour = isWhole ? new Neighbour(target) : undefined
await neighbour?.measureAlone()
const most = { server: 0, helper: 0 }

for (const [area, tries] of Object.entries(areas)) {
  describe(area, () => {
    before(() => neighbour?.measured())
    for (const { name, run } of tries.filter(({ slow }) => isWhole || slow !== true)) {
      test(name, async () => {
        await run(target)
        const { server, helper } = residentBytes(target.server)
        most.server = Math.max(most.server, server)
        most.helper = Math.max(most.helper, helper)
      })
    }
    after(async () => {
      if (neighbour === undefined) return
      const { p99Ms, worstMs } = await neighbour.measured()
      console.log(`${area}: the neighbour's calls took ${p99Ms} ms (p99), ${worstMs} ms at the most`)
    })
  })
}

after(() => neighbour?.stop())

test('afterwards both tenants are served, and the server has not grown', async () => {
  for (const [api, id] of [
    [target.attacker, target.sandboxId],
    [target.neighbour, target.neighbourId],
  ] as const) {
    const { body } = await api.post(`/api/sandboxes/${id}/exec/run`, { cmd: 'echo', args: ['alive'] })
    assert.equal((body as { stdout: string }).stdout, 'alive\n')
  }
  const megabytes = (bytes: number) => `${Math.round(bytes / 2 ** 20)} MB`
  console.log(`the server had ${megabytes(most.server)} at the most, its helper ${megabytes(most.helper)}`)
  if (neighbour === undefined) return
  assert.ok(most.server < residentBytesMax.server && most.helper < residentBytesMax.helper)
  const { p99Ms, isBearable } = neighbour.judged()
  console.log(`over all tries the neighbour's calls took ${p99Ms} ms (p99), alone ${neighbour.aloneMs} ms`)
  assert.ok(isBearable)
})
