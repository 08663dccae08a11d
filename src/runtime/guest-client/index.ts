/** Implements the `Guest` port over one connection per operation; `docs/internals/guest-protocol.md` is the wire. */
export { configureGuest, createGuest, guestConnections } from './guest.ts'
export type { GuestClientOptions, GuestDial } from './guest.ts'
