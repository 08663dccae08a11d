import { driverConformance } from './driver.ts'
import { makeRuncFixture } from './driver-runc-host.ts'

driverConformance('runc', () => makeRuncFixture())
