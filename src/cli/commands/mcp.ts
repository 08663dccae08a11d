import { serveStdio } from '@modelcontextprotocol/server/stdio'
import type { Command } from 'commander'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { ownVersion } from '../../lib/version.ts'
import { chosenTools, mcpServer, type Tool } from '../../mcp/index.ts'
import { UsageError } from '../exit-codes.ts'
import { beforeEnd } from '../interrupt.ts'
import { examples } from '../options.ts'
import { note } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

/** Clients kill a program that has not ended some seconds after its input. */
const finishMs = 1500

interface McpOptions extends Flags {
  tools?: string
}

export function addMcp(program: Command): void {
  program
    .command('mcp')
    .description('serve tools to a client of the Model Context Protocol over standard input and output')
    .addHelpText('after', examples('atoll mcp --tools default'))
    .option(
      '--tools <list>',
      'names, beginnings with a star, "default" or "all", separated by commas (default: default)',
    )
    .action(async (_options: McpOptions, command: Command) => {
      const flags = command.optsWithGlobals<McpOptions>()
      const client = await clientOf(flags)
      const tools = toolsOf(flags.tools)
      const running = new Set<Promise<unknown>>()
      const followed = tools.map((tool) => follow(tool, running))
      const handle = serveStdio(() => mcpServer(client, followed, ownVersion(), { api: client.url }), {
        onerror: (error) => note(error.message),
      })
      // The calls are aborted, and end what they wait for in sandboxes.
      const finish = async () => {
        await handle.close()
        await Promise.race([Promise.allSettled(running), sleep(finishMs)])
      }
      beforeEnd(finish)
      // The client ends this program by closing its input.
      await Promise.race([once(process.stdin, 'end'), once(process.stdin, 'close')])
      await finish()
    })
}

/** A tool whose calls are in `running` while they work. */
function follow(tool: Tool, running: Set<Promise<unknown>>): Tool {
  return {
    ...tool,
    async run(args, context) {
      const work = tool.run(args, context)
      running.add(work)
      try {
        return await work
      } finally {
        running.delete(work)
      }
    },
  }
}

function toolsOf(list: string | undefined) {
  try {
    return chosenTools(list)
  } catch (error) {
    throw error instanceof RangeError ? new UsageError(error.message) : error
  }
}
