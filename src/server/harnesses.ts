import { existsSync } from 'node:fs'
import { join } from 'node:path'

const claudePackage = '@anthropic-ai/claude-agent-sdk'
const moduleFolders = ['usr/local/lib/node_modules', 'usr/lib/node_modules']

/** What to do about a harness that the base image lacks; `undefined` for one that it has, and for programs that only a sandbox knows. */
export function missingHarness(imageDir: string, harness: string): string | undefined {
  if (harness !== 'claude') return undefined
  const isInstalled = moduleFolders.some((folder) =>
    existsSync(join(imageDir, 'base/rootfs', folder, claudePackage, 'package.json')),
  )
  if (isInstalled) return undefined
  return (
    `the harness claude is not installed: run "npm install --global ${claudePackage}" in a sandbox, make a checkpoint of it, ` +
    'and start the session with its checkpoint_id'
  )
}
