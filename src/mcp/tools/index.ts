import type { Tool } from '../tool.ts'
import { deleteTool } from './delete.ts'
import { egressTools } from './egress.ts'
import { fileTools, moreFileTools } from './files.ts'
import { moreSandboxTools, sandboxTools } from './sandboxes.ts'
import { secretTools } from './secrets.ts'
import { sessionTravelTools } from './session-travel.ts'
import { moreSessionTools, sessionTools } from './sessions.ts'
import { treeTools } from './trees.ts'

/** The tools of a client that asks for no others. */
export const defaultTools: readonly Tool[] = [...sandboxTools, ...fileTools, ...sessionTools, deleteTool]

export const allTools: readonly Tool[] = [
  ...defaultTools,
  ...moreSandboxTools,
  ...treeTools,
  ...egressTools,
  ...moreFileTools,
  ...moreSessionTools,
  ...sessionTravelTools,
  ...secretTools,
]

/**
 * The tools of a list such as `run,sandbox_*,default`: a name, the beginning of names with a star, `default` or `all`. Undefined: the
 * default ones. Throws `RangeError` for a word that names none.
 */
export function chosenTools(list: string | undefined): readonly Tool[] {
  if (list === undefined || list.trim() === '') return defaultTools
  const words = list.split(',').map((word) => word.trim())
  const chosen = new Set(words.flatMap(toolsOf))
  return allTools.filter((one) => chosen.has(one))
}

function toolsOf(word: string): readonly Tool[] {
  if (word === 'all') return allTools
  if (word === 'default') return defaultTools
  const beginning = word.endsWith('*') ? word.slice(0, -1) : undefined
  const found = allTools.filter(({ name }) => (beginning === undefined ? name === word : name.startsWith(beginning)))
  if (found.length > 0) return found
  throw new RangeError(`there is no tool ${word}; there are ${allTools.map(({ name }) => name).join(', ')}`)
}
