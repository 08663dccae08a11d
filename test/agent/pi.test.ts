import { harnessConformance } from './conformance.ts'

harnessConformance({ name: 'pi', harness: () => Promise.resolve('pi'), needsProxy: false })
