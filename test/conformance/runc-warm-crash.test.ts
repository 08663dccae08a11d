/** Ends of the server at each step of what it does with a warm sandbox: the next start removes all of it. */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { everyCall } from '../../src/lib/testing/thorough.ts'
import { makeRuncFixture, type RuncFixture } from './driver-runc-host.ts'
import { knowing } from './driver-known.ts'
import { create, remove, succeed } from './driver-shell.ts'
import type { CrashMode, Story } from './crash-victim.ts'
import { crash } from './server-crash.ts'

/** The database has a row for the start of a sandbox, and none for one that nobody owns. */
const stories: { story: Story; interrupted: string[]; stepsMin: number }[] = [
  { story: 'fill', interrupted: [], stepsMin: 25 },
  { story: 'takeover', interrupted: ['sb-warm'], stepsMin: 4 },
  { story: 'recycle', interrupted: [], stepsMin: 6 },
]

describe('the runc driver, ended with a warm sandbox', () => {
  let fixture: RuncFixture
  let idle: string[]
  /** What the database says at the next start. */
  let interrupted: string[] = []
  let lastStep = ''

  /** Opens a driver in this process, after the last victim. */
  async function open() {
    const driver = fixture.makeDriver()
    const { quarantined } = await driver.open(
      await knowing(fixture, { abandoned: { sandboxIds: interrupted, checkpointIds: [] } }),
    )
    interrupted = []
    assert.deepEqual(quarantined, [])
    return driver
  }

  before(async () => {
    fixture = await makeRuncFixture()
    const driver = await open()
    idle = await fixture.trace()
    await driver.close()
  })

  after(async () => {
    await (await open()).close()
    const left = await fixture.trace()
    await fixture.dispose()
    assert.deepEqual(left, [], 'a closed driver without sandboxes leaves nothing')
  })

  /**
   * A server that finds the host as the last one left it, and dies at a step of the story. Returns false when the story has
   * fewer steps.
   */
  async function survive(story: Story, next: string[], at: number, mode: CrashMode): Promise<boolean> {
    const known = { sandboxIds: [], checkpointIds: [], abandoned: { sandboxIds: interrupted, checkpointIds: [] } }
    const options = { story, at, mode, known, sandboxId: 'sb-warm', checkpointId: '' }
    const asIdle = async () => assert.deepEqual(await fixture.trace(), idle, `after the end of the server ${lastStep}`)
    const { isKilled, step } = await crash(fixture, options, asIdle)
    lastStep = step
    interrupted = isKilled ? next : []
    return isKilled
  }
  for (const { story, interrupted: next, stepsMin } of stories) {
    for (const mode of ['before', 'during'] as const) {
      test(`warm sandbox: nothing is left of it when the server ends ${mode} a step of its ${story}`, async () => {
        await everyCall(stepsMin, (at) => survive(story, next, at, mode), { stride: 8 })
        const driver = await open()
        assert.deepEqual(await fixture.trace(), idle)
        const id = await create(driver)
        assert.equal(await succeed(fixture.guest(driver, id), 'hostname'), id)
        await remove(driver, id)
        assert.deepEqual(await fixture.trace(), idle)
        await driver.close()
      })
    }
  }
})
