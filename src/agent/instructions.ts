import { existsSync, globSync } from 'node:fs'
import { join } from 'node:path'

/** Where the model's work becomes visible; without it a model rarely picks the port that the preview shows. */
export const surroundings = `You work in a Linux sandbox of your own, as root. The user watches a live preview of port 3000 of this sandbox.
- When the user asks for something with a web page, serve it on port 3000 before you finish, and check that it answers.
- Start servers in the background (nohup … > server.log 2>&1 &); they go on running after your turn.
- Work in the current directory unless you are asked otherwise.`

/** Files loaded as skills at most: as many as a session's configuration holds. */
const skillFilesMax = 200

/** `SKILL.md` files below a folder, at any depth, and those named one by one; what is missing is left out. */
export function skillPaths(skillsDir: string, skillFiles: readonly string[]): string[] {
  const found = existsSync(skillsDir)
    ? globSync('**/SKILL.md', { cwd: skillsDir, exclude: ['**/node_modules/**', '**/.atoll/**', '**/.git/**'] })
    : []
  const named = skillFiles.filter((path) => path.endsWith('/SKILL.md') && existsSync(path))
  return [...new Set([...named, ...found.map((path) => join(skillsDir, path)).toSorted()])].slice(0, skillFilesMax)
}
