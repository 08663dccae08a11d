import { z } from 'zod'
import { secondTime } from './common.ts'
import { at, showExample } from './examples.ts'

export const putRegistry = z.object({
  username: z.string().min(1).max(256).describe('Without a colon'),
  password: z.string().min(1).max(16_384).describe('A password or a token; no answer has it'),
})
showExample(putRegistry, { username: 'robot', password: 'token-of-the-registry' })

export const registry = z
  .object({
    host: z.string().describe('Host of the registry, with its port if it is another than that of HTTPS'),
    username: z.string().describe('Who logs in'),
    updatedAt: secondTime.describe('When the password was stored'),
  })
  .meta({ id: 'Registry', examples: [{ host: 'ghcr.io', username: 'robot', updatedAt: at.second }] })
