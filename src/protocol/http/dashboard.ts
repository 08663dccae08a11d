import { z } from 'zod'
import { showExample } from './examples.ts'

export const signIn = z.object({
  key: z.string().min(1).max(512).describe('An API key, or the key of the operator'),
})
showExample(signIn, { key: 'atoll_3f9a1c7e…' })
