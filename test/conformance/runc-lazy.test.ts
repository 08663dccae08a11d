/** What memory keeps, with a driver that brings all of it lazily, however small, and what only then can go wrong. */
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { driverConformance } from './driver.ts'
import { lazyConformance } from './driver-lazy.ts'
import type { LazyHost } from './driver-lazy.ts'
import { memoryFaultConformance } from './driver-memory-faults.ts'
import { memoryConformance } from './driver-memory.ts'
import { makeRuncFixture } from './driver-runc-host.ts'
import type { RuncFixture } from './driver-runc-host.ts'

/** Another than that of the other suites of this driver. */
const subnet = '10.231.32.0/20'
const bytesMin = 1

let fixture: RuncFixture | undefined

const host: LazyHost = {
  daemonOf: async (sandboxId) => {
    const file = `${fixture?.names.poolDir}/memory/runs/${sandboxId}/lazy-pages.pids`
    const [, daemon = ''] = (await readFile(file, 'latin1').catch(() => '')).split('\n')
    const pid = Number.parseInt(daemon, 10)
    return pid > 1 && (await host.isAlive(pid)) ? pid : undefined
  },
  firstProcessOf: async (sandboxId) => (await fixture?.pidOf(sandboxId)) ?? assert.fail('no fixture'),
  isAlive: async (pid) => {
    const stat = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '')
    return stat !== '' && !/^.*\) [ZX]/.test(stat)
  },
}

const makeFixture = async () => (fixture = await makeRuncFixture(subnet, bytesMin))
const lazy: Parameters<typeof driverConformance>[2] = [(under) => lazyConformance(under, host)]

driverConformance('runc, lazy', makeFixture, [...lazy, memoryConformance, memoryFaultConformance])
