import { serveStdio } from '@modelcontextprotocol/server/stdio'
import type { Command } from 'commander'
import { once } from 'node:events'
import { ownVersion } from '../../lib/version.ts'
import { chosenTools, mcpServer } from '../../mcp/index.ts'
import { UsageError } from '../exit-codes.ts'
import { note } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface McpOptions extends Flags {
  tools?: string
}

export function addMcp(program: Command): void {
  program
    .command('mcp')
    .description('serve tools to a client of the Model Context Protocol over standard input and output')
    .option('--tools <list>', 'names, beginnings with a star, "default" or "all", separated by commas')
    .action(async (_options: McpOptions, command: Command) => {
      const flags = command.optsWithGlobals<McpOptions>()
      const client = await clientOf(flags)
      const tools = toolsOf(flags.tools)
      serveStdio(() => mcpServer(client, tools, ownVersion()), { onerror: (error) => note(error.message) })
      // The client that started this program ends it so.
      await once(process.stdin, 'close')
    })
}

function toolsOf(list: string | undefined) {
  try {
    return chosenTools(list)
  } catch (error) {
    throw error instanceof RangeError ? new UsageError(error.message) : error
  }
}
