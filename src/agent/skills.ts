import { existsSync, globSync } from 'node:fs'
import { join } from 'node:path'

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
