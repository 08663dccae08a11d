/** What can be done about an error of the stream, by its code; codes that explain themselves are absent. */
const advice: Readonly<Record<string, string>> = {
  budget_exceeded: 'Raise the budget under “Usage”: the session goes on with the messages that wait.',
  model_error: 'The model did not answer. Send the message again; if it stays so, look at the account of the model.',
  model_not_allowed: 'Start a session with a model that this server offers.',
  model_not_found: 'Start a session with a model that this server offers.',
  model_unreachable: 'The server does not reach the API of the model. Send the message again later.',
  model_timeout: 'The API of the model was too slow. Send the message again.',
  model_field_refused: 'The operator can allow the field. The agent went on without it.',
  model_beta_removed: 'The agent goes on without that feature.',
  agent_exited: 'A new process takes the work up by itself.',
  agent_error: 'The next message starts the agent again.',
  agent_output_invalid: 'The line was left out; nothing needs to be done.',
  configure_failed: 'The harness cannot start in this sandbox. Start a session from a checkpoint that has it.',
  output_limit: 'The agent wrote too much and was stopped. The next message gets a new process.',
  output_cut: 'The rest is in the sandbox.',
  checkpoint_failed: 'The turn is not harmed, but it cannot be gone back to.',
  rewind_failed: 'The session is as it was before.',
  messages_cancelled: 'Send them again if they are still wanted.',
  sandbox_restored: 'The agent starts anew and knows what was said by then.',
  no_capacity: 'It is tried again by itself. End sandboxes that are not used to make room.',
  rate_limited: 'It is tried again by itself as soon as another sandbox of the organisation ends or sleeps.',
  unavailable: 'It is tried again by itself.',
  quota_exceeded: 'Delete checkpoints or volumes, then send a message: the boot is tried again.',
}

export function adviceFor(code: string): string | undefined {
  return Object.hasOwn(advice, code) ? advice[code] : undefined
}

/** How a turn ended that did not end well. */
export const endings = {
  error_max_turns: 'The turn ended at its bound of calls of the model.',
  error_during_execution: 'The turn failed.',
  interrupted: 'The turn was interrupted.',
} as const

/** What a model API answers is JSON behind a status: a person reads the message in it. */
export function wordsOf(message: string): string {
  const json = /^\d{3} (\{.*\})$/s.exec(message)?.[1]
  if (json === undefined) return message
  try {
    const { error } = JSON.parse(json) as { error?: { message?: unknown } }
    return typeof error?.message === 'string' ? error.message : message
  } catch {
    return message
  }
}
