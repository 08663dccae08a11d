import type { SystemUser } from '../../lib/system-user.ts'

/** Three for each connection that it takes at most. A host that does not give as many is told of by the program. */
const descriptorsMax = 65_536
/** Opens the program, whose folders its user may not enter, as descriptor 3. */
const opened = `ulimit -n ${descriptorsMax} 2>/dev/null; exec 3<"$1" || exit; shift; exec "$@"`

/**
 * A program as a user of its own without any capability, nor a way to one; it ends with the process that has started it. `argv` has the path of the
 * program, and its arguments.
 */
export function unprivileged(
  { uid, gid }: Pick<SystemUser, 'uid' | 'gid'>,
  [program = '', ...rest]: readonly string[],
): readonly [string, ...string[]] {
  return [
    ...(['sh', '-c', opened, 'sh', program] as const),
    ...['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups'],
    ...['--inh-caps=-all', '--bounding-set=-all', '--no-new-privs', '--pdeathsig=KILL', '--'],
    ...['/proc/self/fd/3', ...rest],
  ]
}
