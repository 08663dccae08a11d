/**
 * What pi's clients say of errors below HTTP: the server restarts, the sandbox has just been moved or woken (then a connection
 * that was being made times out), an answer broke off.
 */
const connectionFailure =
  /connection error|fetch failed|econn|socket|timed out|other side closed|premature close|terminated|stream ended|ended without|network/i

/** What model APIs say inside an answer that had begun well: by Anthropic's types, by OpenAI's codes, or in OpenAI's words. */
const toldInside =
  /\b(overloaded_error|api_error|timeout_error|rate_limit_error|server_error|rate_limit_exceeded)\b|the server had an error/i

/** An error with a status is final: the gateway has tried it again already. */
const statusFailure = /^\s*\d{3}\b/

/** Whether an answer failed in a way that may pass, by the words of its error. */
export function isPassingFailure(message: string): boolean {
  return (connectionFailure.test(message) || toldInside.test(message)) && !statusFailure.test(message)
}
