/** What memory keeps, with a driver that brings all of it lazily, however small, and what only then can go wrong. */
import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isThorough } from '../../src/lib/testing/thorough.ts'
import { driverConformance } from './driver.ts'
import { lazyConformance, type LazyHost } from './driver-lazy.ts'
import { memoryFaultConformance } from './driver-memory-faults.ts'
import { memoryConformance } from './driver-memory.ts'
import { makeRuncFixture, type RuncFixture } from './driver-runc-host.ts'
import { makeHeldCriu, type HeldCriu } from './held-criu.ts'

const bytesMin = 1

let fixture: RuncFixture | undefined
let criu: HeldCriu | undefined

const host: LazyHost = {
  daemonOf: async (sandboxId) => {
    const file = `${fixture?.names.poolDir}/memory/runs/${sandboxId}/lazy-pages.pids`
    const [, daemon = ''] = (await readFile(file, 'latin1').catch(() => '')).split('\n')
    const pid = Number.parseInt(daemon, 10)
    return pid > 1 && (await host.isAlive(pid)) ? pid : undefined
  },
  firstProcessOf: async (sandboxId) => (await fixture?.pidOf(sandboxId)) ?? assert.fail('no fixture'),
  hold: () => (criu ?? assert.fail('no fixture')).hold(),
  isAlive: async (pid) => {
    const stat = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '')
    return stat !== '' && !/^.*\) [ZX]/.test(stat)
  },
}

const makeFixture = async (): Promise<RuncFixture> => {
  const folder = await mkdtemp(join(tmpdir(), 'atoll-held-'))
  criu = makeHeldCriu(folder)
  const made = await makeRuncFixture({ imageDir: criu.imageDir, lazyMemoryBytesMin: bytesMin })
  fixture = {
    ...made,
    dispose: async () => {
      await made.dispose()
      await rm(folder, { recursive: true })
    },
  }
  return fixture
}
const parts: Parameters<typeof driverConformance>[2] = [(under) => lazyConformance(under, host), memoryConformance]

driverConformance('runc, lazy', makeFixture, isThorough ? [...parts, memoryFaultConformance] : parts)
