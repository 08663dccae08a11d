import { before } from 'node:test'
import { harnessConformance } from './conformance.ts'
import { qwenCommand } from './qwen.ts'

// The registry takes as long as it takes: no test counts it.
before(async () => {
  await qwenCommand()
})

harnessConformance({ name: 'acp:qwen', harness: async () => `acp:${await qwenCommand()}`, needsProxy: true })
