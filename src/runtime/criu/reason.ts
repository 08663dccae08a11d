import { readFile } from 'node:fs/promises'
import { reportable } from '../command.ts'

const reasonCharsMax = 300
/** Bounded, since a sandbox decides by what it holds how long a log gets. */
const logCharsMax = 1024 * 1024

/** CRIU's messages about what stops it, by their constant part, and our words for them. */
const sentences: readonly (readonly [RegExp, string])[] = [
  [/Can't dump ghost file (\S+) of (\d+) size/, 'an open file of $2 bytes was removed, which is too large to be kept'],
  [/Unsupported proto 262/, 'a multipath TCP socket is open'],
  [/mqueue isn't empty|Unsupported ipc mqueue/, 'a POSIX message queue exists'],
  [/In-flight connection/, 'a connection is waiting to be accepted'],
  [
    /CPU instruction capabilities do not match|FPU feature required by image is not supported/,
    'its processor lacks instructions that the one on which the memory was saved has',
  ],
  [/found while seizing|Unseizable/, 'a process is under a debugger'],
  [/packetized mode for pipes/, 'a pipe in packet mode (O_DIRECT) is open'],
  [/Non-empty write queue on an in-flight/, 'a connection to a unix socket has data and is waiting to be accepted'],
  [/Control messages in queue/, 'a unix socket holds credentials that were not received'],
  [/Urgent byte in queue/, 'a connection holds an urgent byte (MSG_OOB) that was not received'],
  [/netlink: The socket has data to read/, 'a netlink socket holds messages that were not read'],
  [
    /fsnotify:\s*(Can't dump that handle|Can't find suitable path)/,
    'something is watched (inotify) that was removed or lies in /proc or /sys',
  ],
  [
    /Can't lookup mount=/,
    'an open file belongs to no mount of the sandbox, as a POSIX message queue or memory in huge pages does not',
  ],
  // The kernel's own names, which no sandbox chooses.
  [
    /Can't dump file \d+ of that type \[\d+\] \(\S+ anon_inode:\[?([a-z_-]+)/,
    'an open file is of a kind that cannot be kept: $1',
  ],
  [/unix: .*(external|unreachable)/i, 'a unix socket leads out of the sandbox'],
]

export interface CriuFault {
  /** One bounded sentence without paths of the host. */
  reason: string
  noSpace: boolean
  /** The kernel killed what was being restored, as it does when memory runs out. */
  killed: boolean
  /** CRIU named no cause, or one that lies in the machine: a repeat may succeed. */
  mayPass: boolean
}

/** Causes that lie in the machine, or in our scripts and daemons, and not in what was saved. */
const passing =
  /No space left|Disk quota exceeded|Cannot allocate memory|Resource temporarily unavailable|Too many open files|Connection refused|action script|uffd/i
/** Errors of a CRIU log that only follow from another and name no cause. */
export const followUp = /exited, status=|FAILED|RLIMIT_NOFILE for self/

/** Why CRIU gave up, from the log that it left in `file`. */
export async function faultOf(file: string, hostFolders: readonly string[]): Promise<CriuFault> {
  const log = await readFile(file, 'utf8').catch(() => '')
  return faultIn(log.slice(-logCharsMax), hostFolders)
}

export function faultIn(log: string, hostFolders: readonly string[]): CriuFault {
  const errors = [...log.matchAll(/Error \([^)]*\): (.*)$/gm)].map((match) => match[1] ?? '')
  const noSpace = errors.some((error) => /No space left|Disk quota exceeded/.test(error))
  const killed = errors.some((error) => /killed by signal 9\b/.test(error))
  const cause = errors.find((error) => !followUp.test(error))
  const mayPass = cause === undefined || errors.some((error) => passing.test(error))
  const facts = { noSpace, killed, mayPass }
  for (const [pattern, sentence] of sentences) {
    const match = errors.map((error) => pattern.exec(error)).find((found) => found !== null)
    if (match)
      return { reason: sentence.replace(/\$(\d)/g, (_, group: string) => match[Number(group)] ?? ''), ...facts }
  }
  // The first error names a cause; the later ones only repeat that CRIU failed. The sandbox chooses the file names in it.
  return { reason: reportable(cause ?? errors.at(-1) ?? 'CRIU gave no reason', hostFolders, reasonCharsMax), ...facts }
}
