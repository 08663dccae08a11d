/**
 * What pi's clients say of errors below HTTP: the server restarts, the sandbox has just been moved or woken (then a connection
 * that was being made times out), an answer broke off. An error with a status is final: the gateway has tried it again
 * already.
 */
const connectionFailure =
  /connection error|fetch failed|econn|socket|timed out|other side closed|premature close|terminated|stream ended|ended without|network/i
const statusFailure = /^\s*\d{3}\b/

/** Whether an answer failed in a way that may pass, by the words of its error. */
export function isConnectionFailure(message: string): boolean {
  return connectionFailure.test(message) && !statusFailure.test(message)
}
