import type { Config } from './config.ts'

/** What `npm start` prints once it serves: the address, the model, and a `curl` to paste, with a fresh key in it. */
export function welcome(config: Config, freshKey: string | undefined): string {
  // A key that was configured is a secret, and what is printed here may be kept in a log.
  const key = freshKey ?? (config.apiKey === undefined ? '<your key>' : '$ATOLL_API_KEY')
  const lines = [`Atoll serves at ${config.ownUrl} (reference at ${config.ownUrl}/docs)`]
  if (config.model === 'demo') {
    lines.push('Model: demo, a local stand-in, since no model is configured (ANTHROPIC_API_KEY or OPENAI_API_KEY).')
  } else lines.push(`Model: ${config.model}`)
  lines.push(
    '',
    'Create a session:',
    '',
    `  curl -s ${config.ownUrl}/v1/sessions -H "X-API-Key: ${key}" \\`,
    `    -H 'Content-Type: application/json' -d '{"prompt": "A page about coral reefs", "user_id": "ada"}'`,
    '',
  )
  return lines.join('\n')
}
