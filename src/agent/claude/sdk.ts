import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const packageName = '@anthropic-ai/claude-agent-sdk'

/** Where an operator may have put the package: where `npm install --global` of the base image's Node, or of Debian's, puts it. */
const moduleFolders = ['/usr/local/lib/node_modules', '/usr/lib/node_modules']

/** The part of the Claude Agent SDK that is used; the package itself is proprietary and not ours to ship. */
export interface ClaudeSdk {
  version: string
  query(options: { prompt: string; options: Record<string, unknown> }): AsyncIterable<unknown>
}

/** Loads the package from the sandbox. Throws, with what to do, when it is not there. */
export async function loadClaudeSdk(): Promise<ClaudeSdk> {
  const own = process.env['ATOLL_CLAUDE_MODULES']
  for (const folder of own ? [own, ...moduleFolders] : moduleFolders) {
    const root = join(folder, packageName)
    if (!existsSync(join(root, 'package.json'))) continue
    const about = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version?: string; main?: string }
    const module = (await import(pathToFileURL(join(root, about.main ?? 'sdk.mjs')).href)) as Partial<ClaudeSdk>
    if (typeof module.query !== 'function') throw new Error(`${root} has no query(): it is not the Claude Agent SDK.`)
    return { version: about.version ?? '', query: module.query }
  }
  throw new Error(
    `The Claude Agent SDK is not installed in this sandbox: run "npm install --global ${packageName}" in one, make a checkpoint ` +
      'of it, and start sessions from that checkpoint (checkpoint_id).',
  )
}
