import { join } from 'node:path'
import type { Conversation, DemoTool } from './conversation.ts'

export interface ToolUse {
  name: string
  arguments: string
}

type Kind = 'write' | 'edit' | 'bash'

/** What harnesses call them, in lower case. */
const toolNames: Record<Kind, readonly string[]> = {
  write: ['write', 'write_file'],
  edit: ['edit', 'replace'],
  bash: ['bash', 'run_shell_command', 'shell'],
}

/** Calls of the tools that a request offers, with the parameter names that its harness has for them. */
export class ToolCalls {
  readonly #tools: readonly DemoTool[]
  readonly #cwd: string | undefined

  constructor(conversation: Conversation) {
    this.#tools = conversation.tools
    this.#cwd = conversation.cwd
  }

  write(path: string, content: string): ToolUse | undefined {
    const tool = this.#tool('write')
    return tool && call(tool, { ...this.#path(tool, path), content })
  }

  edit(path: string, oldText: string, newText: string): ToolUse | undefined {
    const tool = this.#tool('edit')
    if (!tool) return undefined
    const target = this.#path(tool, path)
    if (tool.parameters.includes('edits')) return call(tool, { ...target, edits: [{ oldText, newText }] })
    if (tool.parameters.includes('old_string')) {
      return call(tool, { ...target, old_string: oldText, new_string: newText })
    }
    if (tool.parameters.includes('oldString')) return call(tool, { ...target, oldString: oldText, newString: newText })
    return call(tool, { ...target, oldText, newText })
  }

  bash(command: string): ToolUse | undefined {
    const tool = this.#tool('bash')
    if (!tool) return undefined
    const described = tool.parameters.includes('description') ? { description: 'Run a command' } : {}
    // Where it is offered, it is demanded.
    const place = tool.parameters.includes('is_background') ? { is_background: false } : {}
    return call(tool, { command, ...described, ...place })
  }

  #tool(kind: Kind): DemoTool | undefined {
    return this.#tools.find((tool) => toolNames[kind].includes(tool.name.toLowerCase()))
  }

  #path(tool: DemoTool, path: string): Record<string, string> {
    const parameter = ['path', 'file_path', 'filePath'].find((name) => tool.parameters.includes(name)) ?? 'path'
    // Harnesses that say file_path want it absolute.
    return { [parameter]: parameter === 'path' || !this.#cwd ? path : join(this.#cwd, path) }
  }
}

function call(tool: DemoTool, args: object): ToolUse {
  return { name: tool.name, arguments: JSON.stringify(args) }
}
