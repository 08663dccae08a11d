import { useMutation } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { Sandbox, Session } from 'atoll-sdk'
import { useMay } from '../../account/account.tsx'
import { client } from '../../account/client.ts'
import type { Commands } from '../../ui/commands.tsx'
import { quoted } from '../../ui/commands.tsx'
import { literalOf } from '../../sandboxes/literal.ts'
import { shell } from '../sandboxes/terminal/shell.ts'

/** Whose the sessions are that this page begins. */
const userId = 'dashboard'

/** Starts a sandbox with the defaults of the server and opens a terminal in it, where the key may have one. */
export function useBeginSandbox() {
  const navigate = useNavigate()
  const mayAct = useMay()('sandbox:exec')
  return useMutation({
    mutationFn: async () => {
      const sandbox = await Sandbox.create({ client })
      // Without it the page of the sandbox opens all the same, and says what is wrong.
      if (mayAct) await sandbox.terminal(shell).catch(() => undefined)
      return sandbox
    },
    onSuccess: ({ id }) =>
      navigate({ to: '/sandboxes/$sandboxId', params: { sandboxId: id }, search: { tab: 'terminal' } }),
  })
}

/** Starts a session with the model of the server and opens it. */
export function useBeginSession() {
  const navigate = useNavigate()
  return useMutation({
    mutationFn: (prompt: string) => Session.create({ client, prompt, userId }),
    onSuccess: ({ id }) => navigate({ to: '/sessions/$sessionId', params: { sessionId: id } }),
  })
}

export const sandboxCommands: Commands = {
  cli: 'atoll shell "$(atoll create)"',
  curl: { method: 'POST', path: '/api/sandboxes' },
  sdk: 'const sandbox = await Sandbox.create()',
}

export function sessionCommands(prompt: string): Commands {
  return {
    cli: `atoll session new ${quoted(prompt)}`,
    curl: { method: 'POST', path: '/v1/sessions', json: { prompt, user_id: userId } },
    sdk: `const session = await Session.create({ prompt: ${literalOf(prompt)}, userId: '${userId}' })`,
  }
}

export const imageCommands: Commands = {
  cli: 'atoll image build tools .',
  curl: { method: 'POST', path: '/api/templates', json: { name: 'tools', dockerfile: 'FROM base\nRUN echo built' } },
  sdk: "const image = await Image.fromDockerfile('FROM base\\nRUN echo built').build('tools')",
}
