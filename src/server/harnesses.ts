import { lstatSync } from 'node:fs'
import { join } from 'node:path'
import { acpCommand } from '../agent/acp/process.ts'

const claudePackage = '@anthropic-ai/claude-agent-sdk'
const moduleFolders = ['usr/local/lib/node_modules', 'usr/lib/node_modules']
/** The `PATH` of sandboxes. */
const programFolders = ['usr/local/sbin', 'usr/local/bin', 'usr/sbin', 'usr/bin', 'sbin', 'bin']

/** Instructions for a harness that the base image lacks; `undefined` if it is installed, or if only the sandbox can tell. */
export function missingHarness(imageDir: string, harness: string): string | undefined {
  const inBase = (path: string) => isThere(join(imageDir, 'base/rootfs', path))
  const checkpoint = 'in a sandbox, make a checkpoint of it, and start the session with its checkpoint_id'
  if (harness === 'claude') {
    if (moduleFolders.some((folder) => inBase(join(folder, claudePackage, 'package.json')))) return undefined
    return `the harness claude is not installed: run "npm install --global ${claudePackage}" ${checkpoint}`
  }
  const [program] = (harness.startsWith('acp:') && acpCommand(harness)) || []
  if (program === undefined || program.includes('/')) return undefined
  if (programFolders.some((folder) => inBase(join(folder, program)))) return undefined
  return `the program ${program} of the harness is not installed: install it ${checkpoint}`
}

/** A link counts wherever it leads: its target is a path of the sandbox. */
function isThere(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined
}
