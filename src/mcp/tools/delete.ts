import { z } from 'zod'
import { InvalidRequestError, Sandbox, Session } from '../../../sdk/src/index.ts'
import { removes, tool } from '../tool.ts'

const id = z.string().min(1).optional()

/** Ends all that the default tools make: one tool, since each costs a model tokens. */
export const deleteTool = tool({
  name: 'delete',
  title: 'Delete what you made',
  description: 'Stop a sandbox for good, end a session with its sandbox, or delete a checkpoint.',
  input: z.object({ sandbox_id: id, session_id: id, checkpoint_id: id }),
  output: z.object({ deleted: z.array(z.string()) }),
  hints: removes,
  async run({ sandbox_id, session_id, checkpoint_id }, { client, signal }) {
    const deleted = []
    if (sandbox_id !== undefined) {
      await (await Sandbox.connect(sandbox_id, { client, signal })).delete({ signal })
      deleted.push(sandbox_id)
    }
    if (session_id !== undefined) {
      await (await Session.connect(session_id, { client, signal })).end({ signal })
      deleted.push(session_id)
    }
    if (checkpoint_id !== undefined) {
      await client.json('DELETE', `/api/checkpoints/${encodeURIComponent(checkpoint_id)}`, { signal })
      deleted.push(checkpoint_id)
    }
    if (deleted.length === 0) throw new InvalidRequestError('give one of sandbox_id, session_id and checkpoint_id')
    return { deleted }
  },
})
