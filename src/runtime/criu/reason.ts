import { readFile } from 'node:fs/promises'
import { reportable } from '../command.ts'

const reasonCharsMax = 300
/** A log is bounded by what a sandbox holds, which is its own choice. */
const logCharsMax = 1024 * 1024

/** CRIU's words for what stops it, by the part of its message that does not change, and ours. */
const sentences: readonly (readonly [RegExp, string])[] = [
  [/Can't dump ghost file (\S+) of (\d+) size/, 'an open file of $2 bytes was removed, which is too large to be kept'],
  [/Unsupported proto 262/, 'a multipath TCP socket is open'],
  [/mqueue isn't empty|Unsupported ipc mqueue/, 'a POSIX message queue exists'],
  [/In-flight connection/, 'a connection is waiting to be accepted'],
  [
    /CPU instruction capabilities do not match/,
    'its processor lacks instructions that the one on which the memory was saved has',
  ],
  [/unix: .*(external|unreachable)/i, 'a unix socket leads out of the sandbox'],
]

export interface CriuFault {
  /** One bounded sentence without paths of the host. */
  reason: string
  noSpace: boolean
  /** The kernel killed what was being restored, as it does when memory runs out. */
  killed: boolean
}

/** Why CRIU gave up, from the log that it left in `file`. */
export async function faultOf(file: string, hostFolders: readonly string[]): Promise<CriuFault> {
  const log = await readFile(file, 'utf8').catch(() => '')
  return faultIn(log.slice(-logCharsMax), hostFolders)
}

export function faultIn(log: string, hostFolders: readonly string[]): CriuFault {
  const errors = [...log.matchAll(/Error \([^)]*\): (.*)$/gm)].map((match) => match[1] ?? '')
  const noSpace = errors.some((error) => /No space left|Disk quota exceeded/.test(error))
  const killed = errors.some((error) => /killed by signal 9\b/.test(error))
  for (const [pattern, sentence] of sentences) {
    const match = errors.map((error) => pattern.exec(error)).find((found) => found !== null)
    if (match)
      return { reason: sentence.replace(/\$(\d)/g, (_, group: string) => match[Number(group)] ?? ''), noSpace, killed }
  }
  // The first error names a cause; the later ones only repeat that it failed.
  const cause = errors.find((error) => !/exited, status=|FAILED|RLIMIT_NOFILE for self/.test(error)) ?? errors.at(-1)
  // File names in it are the sandbox's own choice.
  return { reason: reportable(cause ?? 'CRIU gave no reason', hostFolders, reasonCharsMax), noSpace, killed }
}
