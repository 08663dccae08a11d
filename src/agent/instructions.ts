import { existsSync, globSync } from 'node:fs'
import { join } from 'node:path'
import type { HarnessSettings } from './harness.ts'

/** Tells the model where its work becomes visible. Without it a model rarely picks the port of the preview. */
export const sandboxPrompt = `You work in a Linux sandbox of your own, as root. The user watches a live preview of port 3000 of this sandbox.
- When the user asks for something with a web page, serve it on port 3000 before you finish, and check that it answers.
- Start servers in the background (nohup … > server.log 2>&1 &); they go on running after your turn.
- Work in the current directory unless you are asked otherwise.`

/** The prompt of a harness that has no list of skills: about the sandbox, the operator's own, and the paths of the skills. */
export function promptWithSkills({ systemPrompt, skillsDir, skillFiles }: HarnessSettings): string {
  const skills = skillPaths(skillsDir, skillFiles ?? [])
  const list = skills.length === 0 ? '' : `Read these skills when they fit the task:\n${skills.join('\n')}`
  return [sandboxPrompt, systemPrompt ?? '', list].filter((part) => part !== '').join('\n\n')
}

/** As many as a session's configuration can hold. */
const skillFilesMax = 200

/** The existing ones of `skillFiles`, then all `SKILL.md` files below `skillsDir`. */
export function skillPaths(skillsDir: string, skillFiles: readonly string[]): string[] {
  const found = existsSync(skillsDir)
    ? globSync('**/SKILL.md', { cwd: skillsDir, exclude: ['**/node_modules/**', '**/.atoll/**', '**/.git/**'] })
    : []
  const named = skillFiles.filter((path) => path.endsWith('/SKILL.md') && existsSync(path))
  return [...new Set([...named, ...found.map((path) => join(skillsDir, path)).toSorted()])].slice(0, skillFilesMax)
}
