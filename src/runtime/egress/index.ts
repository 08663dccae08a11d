/**
 * What holds the egress of the sandboxes of one host (docs/internals/egress.md): `process.ts` supervises the program `atoll-egress`, `channel.ts` and
 * `frames.ts` are what is said to it and by it, `surroundings.ts` what it is told of the host, and `held-egress.ts` gives it what holds for each
 * sandbox that runs. The packet rules are `network/egress.ts`.
 */
export { HeldEgress } from './held-egress.ts'
export type { EgressSettings } from './surroundings.ts'
