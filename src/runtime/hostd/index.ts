/** The host's side of the server: a small resident process, `hostd/` in Rust, and how the server speaks with it. */
export { Hostd } from './hostd.ts'
export type { HostTool } from './hostd.ts'
export { RelayUnavailable } from './relay.ts'
