import { defined } from '../lib/defined.ts'
import type { Step } from './manifest.ts'

/** A program that carries out a step. */
export interface StepCommand {
  argv: [string, ...string[]]
  envs: Record<string, string>
  /** Default the root folder. */
  cwd?: string
  /** Default root. */
  user?: string
}

/** What a step runs, as root in the sandbox of its build; folders and files are made by the guest instead. `envs` are those of steps before it. */
export function commandOf(step: Step, envs: Record<string, string>): StepCommand | undefined {
  switch (step.type) {
    case 'apt_install':
      return {
        // Names are arguments, never text of the script.
        argv: ['sh', '-c', 'apt-get update && apt-get install --yes -- "$@"', 'apt', ...step.args.packages],
        envs: { ...envs, DEBIAN_FRONTEND: 'noninteractive' },
      }
    case 'pip_install':
      return {
        argv: ['python3', '-m', 'pip', 'install', '--', ...step.args.packages],
        // An older pip, which does not know the settings, needs neither.
        envs: { ...envs, PIP_BREAK_SYSTEM_PACKAGES: '1', PIP_ROOT_USER_ACTION: 'ignore', PIP_NO_INPUT: '1' },
      }
    case 'run':
      return {
        argv: ['sh', '-c', step.args.commands.map(untilFailure).join('\n')],
        envs,
        ...defined({ cwd: step.args.cwd, user: step.args.user }),
      }
    case 'env':
      return { argv: ['sh', '-c', keepVariables, 'env', ...Object.entries(step.args.vars).flat()], envs }
    case 'workdir':
    case 'add_file':
    case 'add_dir':
      return undefined
  }
}

/** One shell for all commands: a `cd` or a variable lasts. The first one that fails ends it. */
function untilFailure(command: string): string {
  return `{\n${command}\n} || exit $?`
}

/** Takes names and values by turns. Login shells and PAM read the two files; a plain exec reads neither. */
const keepVariables = `
mkdir -p /etc/profile.d || exit
while test $# -gt 0; do
  quoted=$(printf %s "$2" | sed "s/'/'\\\\\\\\''/g") || exit
  printf '%s=%s\\n' "$1" "$2" >>/etc/environment || exit
  printf "export %s='%s'\\n" "$1" "$quoted" >>/etc/profile.d/osb-image.sh || exit
  shift 2
done`
