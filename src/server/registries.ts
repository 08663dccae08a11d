import { z } from 'zod'
import type { Registry } from '../runtime/index.ts'
import { readJson } from './limits.ts'

const hostPattern = /^(?:[a-z0-9]+(?:[.-][a-z0-9]+)*|\[[0-9a-f:]+\])(?::[0-9]{1,5})?$/i

const registries = z.record(
  z.string().regex(hostPattern, 'must be a host name or an address, with a port if it has one'),
  z
    .strictObject({
      // The header of basic authentication separates the two by a colon.
      username: z
        .string()
        .regex(/^[^:]+$/, 'must not be empty or have a colon')
        .exactOptional(),
      password: z.string().min(1, 'must not be empty').exactOptional(),
      insecure: z.boolean().exactOptional(),
    })
    .refine(({ username, password }) => (username === undefined) === (password === undefined), {
      message: 'needs both username and password, or neither',
    }),
)

/** Public ones, which serve nothing of the host's network. */
const publicHosts = ['docker.io', 'ghcr.io', 'quay.io', 'registry.k8s.io', 'public.ecr.aws', 'mcr.microsoft.com']

/** `ATOLL_REGISTRIES`: a JSON object from the host of a registry to how it is read, `none`, or nothing for the public ones. */
export function readRegistries(text: string | undefined, faults: string[]): Registry[] {
  if (text === undefined) return publicHosts.map((host) => ({ host }))
  if (text === 'none') return []
  const given = readJson('ATOLL_REGISTRIES', text, registries, faults) ?? {}
  return Object.entries(given).map(([host, registry]) => ({ host: host.toLowerCase(), ...registry }))
}
