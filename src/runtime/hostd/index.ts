/** The host's side of the server: a small resident process, `hostd/` in Rust, and how the server speaks with it. */
export { Hostd } from './hostd.ts'
export { asHostdError, faultIn, HostdError, hostToolAt, shellCommand, toolCommand } from './host-tool.ts'
export type { HostTool, ProgramPlace } from './host-tool.ts'
export { RelayUnavailable } from './relay.ts'
