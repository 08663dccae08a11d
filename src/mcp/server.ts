import { McpServer } from '@modelcontextprotocol/server'
import type { z } from 'zod'
import { type Atoll, AtollError } from '../../sdk/src/index.ts'
import { plainIssue } from '../protocol/plain-issue.ts'
import type { Addresses, Tool } from './tool.ts'

/** A client gets no more progress than it can show. */
const progressIntervalMs = 200
const progressLengthMax = 500

const instructions = `Atoll runs isolated Linux machines (sandboxes) and AI agents in them. Ids come from sandbox_create, checkpoint, fork and session_start. A sandbox that is not used sleeps and wakes by itself.`

/** An MCP server whose tools call one Atoll server. */
export function mcpServer(client: Atoll, tools: readonly Tool[], version: string, addresses: Addresses): McpServer {
  const server = new McpServer({ name: 'atoll', title: 'Atoll', version }, { instructions })
  for (const tool of tools) {
    const { name, title, description, input, output, hints } = tool
    const config = {
      title,
      description,
      inputSchema: plainly(input),
      outputSchema: output,
      annotations: { title, ...hints },
    }
    server.registerTool(name, config, async (args, context) => {
      const { signal, _meta, notify } = context.mcpReq
      const progress = progressOf(_meta?.progressToken, (params) =>
        notify({ method: 'notifications/progress', params }),
      )
      try {
        const result = await tool.run(args as never, { client, addresses, signal, progress })
        return { content: [{ type: 'text', text: JSON.stringify(result) }], structuredContent: result }
      } catch (error) {
        // The model reads it and may correct its call.
        if (error instanceof AtollError) return { isError: true, content: [{ type: 'text', text: textOf(error) }] }
        throw error
      }
    })
  }
  return server
}

/** A schema whose faults are in the words of the API. */
function plainly(schema: z.ZodObject) {
  const validate = (value: unknown) => {
    const { data, error } = schema.safeParse(value, { error: plainIssue })
    return error === undefined ? { value: data } : { issues: error.issues }
  }
  return { '~standard': { ...schema['~standard'], validate } }
}

function textOf({ message, code, details }: AtollError): string {
  const facts = Object.entries(details).map(([name, value]) => `${name}: ${JSON.stringify(value)}`)
  return [code === undefined ? message : `${code}: ${message}`, ...facts].join('\n')
}

/** Sends the last reported line, at most once per interval, to a caller that asked for progress. */
function progressOf(
  progressToken: string | number | undefined,
  send: (params: { progressToken: string | number; progress: number; message: string }) => Promise<void>,
): (message: string) => void {
  let [count, toldAtMs] = [0, -progressIntervalMs]
  return (message) => {
    const line = message.trimEnd().split('\n').at(-1)?.trim().slice(-progressLengthMax)
    const nowMs = performance.now()
    if (progressToken === undefined || line === undefined || line === '' || nowMs - toldAtMs < progressIntervalMs)
      return
    toldAtMs = nowMs
    count += 1
    // The caller may have gone.
    send({ progressToken, progress: count, message: line }).catch(() => undefined)
  }
}
