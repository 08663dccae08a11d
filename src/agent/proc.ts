import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** Reads `/proc` about processes. A process may end meanwhile: the answer is empty then, and no error. */

/** A file as text; empty when it cannot be read. */
export function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

/** Where the links of a folder lead, such as those of `/proc/PID/fd`; none when it cannot be read. */
export function linksIn(folder: string): string[] {
  try {
    return readdirSync(folder).map((name) => linkAt(`${folder}/${name}`))
  } catch {
    return []
  }
}

function linkAt(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}

/** The fields of proc_pid_stat(5) from the third, `state`, on; the name before it may hold blanks and brackets. A zombie has ended. */
export function statOf(pid: number): string[] | undefined {
  const stat = textOf(`/proc/${pid}/stat`)
  if (stat === '') return undefined
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields[0] === 'Z' ? undefined : fields
}
