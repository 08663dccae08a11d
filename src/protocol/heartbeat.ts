/** A stream of server-sent events that has nothing else to send sends its client a heartbeat this often. */
export const heartbeatMs = 15_000

/** A client that receives nothing for so long takes its connection for dead, as after a sleep of the machine. */
export const silenceMs = 3 * heartbeatMs
