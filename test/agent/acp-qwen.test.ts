import { harnessConformance } from './conformance.ts'
import { qwenCommand } from './qwen.ts'

harnessConformance({ name: 'acp:qwen', harness: async () => `acp:${await qwenCommand()}`, needsProxy: true })
