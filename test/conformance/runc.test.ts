import { driverConformance } from './driver.ts'
import { makeRuncFixture } from './driver-runc-host.ts'

driverConformance('runc', () => makeRuncFixture({ subnet: '10.231.96.0/20' }))
