import type { ProcessInfo, TerminalOptions } from 'atoll-sdk'

const script =
  '[ "$PWD" != / ] || [ ! -d /workspace ] || cd /workspace; [ $# -gt 0 ] || set -- "$(command -v bash || echo sh)"; exec "$@"'

/** A shell in the folder that the image names, else in /workspace: bash, or sh where there is none. */
export const shell = {
  shell: '/bin/sh',
  args: ['-c', script, 'sh'],
  envs: { TERM: 'xterm-256color', COLORTERM: 'truecolor' },
} satisfies TerminalOptions

/** What a terminal was asked to run, without such a script of this page or the CLI; undefined for a shell. */
export function askedCommand({ command, args }: ProcessInfo): string[] | undefined {
  const [flag, , , ...asked] = args
  const hasScript = command === '/bin/sh' && flag === '-c' && args.length >= 3
  const argv = hasScript ? asked : [command, ...args]
  const [program] = argv
  return program === undefined || (argv.length === 1 && isShell(program)) ? undefined : argv
}

/** `bash` of `/bin/bash`. */
export function programName(command: string): string {
  return command.slice(command.lastIndexOf('/') + 1)
}

export function isShell(program: string): boolean {
  return shells.has(programName(program).replace(/^-/, ''))
}

const shells = new Set(['ash', 'bash', 'dash', 'fish', 'ksh', 'sh', 'zsh'])
