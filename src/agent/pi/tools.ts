import { existsSync } from 'node:fs'
import { glob } from 'node:fs/promises'
import { join } from 'node:path'
import {
  createBashToolDefinition,
  createFindToolDefinition,
  type ToolDefinition,
} from '@earendil-works/pi-coding-agent'
import { toolNames } from '../../protocol/agent.ts'
import { bashOperations } from './bash.ts'

/** pi's own names where they differ from the protocol's. */
const protocolNames: Record<string, string> = { find: 'glob' }

export function protocolToolName(name: string): string {
  return protocolNames[name] ?? name
}

/** Names offered to the model: all, or those that the configuration allows. */
export function allowedToolNames(allowed: readonly string[] | undefined): string[] {
  if (!allowed) return [...toolNames]
  const wanted = new Set(allowed.map((name) => protocolToolName(name.toLowerCase())))
  return toolNames.filter((name) => wanted.has(name))
}

/**
 * The tools that replace pi's: `bash` with output that outlives the call, and `glob`, which is pi's `find` without the
 * program `fd`, that pi would download.
 */
export function ownTools(cwd: string): ToolDefinition[] {
  const bash = createBashToolDefinition(cwd, { operations: bashOperations })
  const find = createFindToolDefinition(cwd, {
    operations: {
      exists: existsSync,
      async glob(pattern, folder, { ignore, limit }) {
        const paths: string[] = []
        for await (const path of glob(pattern, { cwd: folder, exclude: ignore })) {
          paths.push(join(folder, path))
          if (paths.length >= limit) break
        }
        return paths
      },
    },
  })
  const description = find.description.replace(' Respects .gitignore.', ' Leaves out node_modules and .git.')
  const tools = [
    bash,
    { ...find, name: 'glob', label: 'glob', description, promptSnippet: 'Find files by glob pattern' },
  ]
  // pi types its tools by their parameters, and a list of them by none.
  return tools as unknown as ToolDefinition[]
}
