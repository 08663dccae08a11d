import { posix } from 'node:path'
import { ignoreNotFound, isServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import type { ImageStep } from '../protocol/http/images.ts'
import { assertEnvs, assertInput, assertPath } from '../sandbox/index.ts'
import { asRoot, type BuildSandbox } from './build/sandbox.ts'

type WireArgs = { [One in ImageStep as One['type']]: One['args'] }

/** Arguments by type of step. The schemas of the wire say what a client may give; a Dockerfile also says how its commands run. */
interface StepArgs extends Omit<WireArgs, 'run'> {
  run: WireArgs['run'] & { cwd?: string; user?: string }
}

export type StepType = keyof WireArgs
export type ManifestStep<Type extends StepType = StepType> = { [One in Type]: { type: One; args: StepArgs[One] } }[Type]

/** A file of a step. Its content is kept for the build alone (`BuildFiles`). */
export interface FileOutline {
  bytes: number
  sha256: string
}

type WithoutContent<File> = Omit<File, 'content' | 'encoding'> & FileOutline

/** Arguments as records keep them. */
interface OutlineArgs extends Omit<StepArgs, 'add_file' | 'add_dir'> {
  add_file: WithoutContent<StepArgs['add_file']>
  add_dir: Omit<StepArgs['add_dir'], 'files'> & { files: WithoutContent<StepArgs['add_dir']['files'][number]>[] }
}

export type Step<Type extends StepType = StepType> = { [One in Type]: { type: One; args: OutlineArgs[One] } }[Type]

/** Takes the content of a file, in base64, and returns what stands for it. Throws `invalid_request` with the field. */
type KeepContent = (content: string, field: string) => Promise<FileOutline>

export interface StepCommand {
  argv: [string, ...string[]]
  /** Beside the variables of earlier steps. */
  envs?: Record<string, string>
  /** Default the root folder. */
  cwd?: string
  /** Default root. */
  user?: string
}

/** The sandbox of a build, as a step uses it. */
export interface StepSandbox {
  /** Throws `build_failed` unless the program exits with 0. */
  run(command: StepCommand): Promise<void>
  makeFolder(path: string): Promise<void>
  write(path: string, file: FileOutline): Promise<void>
}

interface StepKind<Type extends StepType> {
  /** Counts changes of what `run` leaves in the image, for the hash of the step: a layer of a former one is not used. Default 1. */
  revision?: number
  /** All texts that the record of an image keeps. */
  texts(args: StepArgs[Type]): string[]
  /**
   * Checks what the schema does not, and returns all arguments, with hashes in place of contents: the hash of a step is that of its outline.
   * Throws `invalid_request` with the field.
   */
  outline(args: StepArgs[Type], field: string, keep: KeepContent): OutlineArgs[Type] | Promise<OutlineArgs[Type]>
  /** For logs, in any length. */
  summary(args: OutlineArgs[Type]): string
  /** Variables that later steps have. */
  envs?(args: OutlineArgs[Type]): Record<string, string>
  run(args: OutlineArgs[Type], sandbox: StepSandbox): Promise<void>
}

/** The commands of a step are one argument of a shell, which the kernel bounds (execve(2): 128 KiB). */
const commandBytesMax = 120 * 1024
const packagePattern = /^[A-Za-z0-9][^\0\s]{0,255}$/

/** Everything that depends on the type of a step, except its schema (`protocol/http/images.ts`). */
const kinds: { [Type in StepType]: StepKind<Type> } = {
  apt_install: installation((packages) => ({
    // Names are arguments, never text of the script.
    argv: ['sh', '-c', 'apt-get update && apt-get install --yes -- "$@"', 'apt', ...packages],
    envs: { DEBIAN_FRONTEND: 'noninteractive' },
  })),

  pip_install: installation((packages) => ({
    argv: ['sh', '-c', pipInstall, 'pip', ...packages],
    // PEP 668: Debian's pip refuses to install for the whole system otherwise. An older pip does not know these settings and needs none.
    envs: {
      ...{ PIP_BREAK_SYSTEM_PACKAGES: '1', PIP_ROOT_USER_ACTION: 'ignore', PIP_NO_INPUT: '1' },
      DEBIAN_FRONTEND: 'noninteractive',
    },
  })),

  run: {
    texts: ({ commands }) => commands,
    outline(args, field) {
      const characters = args.commands.reduce((sum, { length }) => sum + length, 0)
      const bound = `must be at most ${commandBytesMax} bytes together`
      assertInput(characters <= commandBytesMax, `${field}.commands`, bound)
      for (const [index, command] of args.commands.entries()) assertCommand(command, `${field}.commands.${index}`)
      return args
    },
    summary: ({ commands }) => commands.join(' && '),
    run: ({ commands, cwd, user }, sandbox) =>
      sandbox.run({ argv: ['sh', '-c', commands.map(untilFailure).join('\n')], ...defined({ cwd, user }) }),
  },

  env: {
    revision: 2,
    texts: ({ vars }) => Object.entries(vars).flat(),
    outline(args, field) {
      assertEnvs(args.vars, `${field}.vars`)
      for (const [name, value] of Object.entries(args.vars)) {
        // Neither `/etc/environment` nor a line of `export` can hold it.
        assertInput(!/[\n\r]/.test(value), `${field}.vars.${name}`, 'must be one line')
      }
      return args
    },
    summary: ({ vars }) => Object.keys(vars).join(' '),
    envs: ({ vars }) => vars,
    run: ({ vars }, sandbox) =>
      sandbox.run({ argv: ['sh', '-c', keepVariables, 'env', ...Object.entries(vars).flat()] }),
  },

  workdir: {
    texts: ({ path }) => [path],
    outline(args, field) {
      assertTarget(args.path, `${field}.path`)
      return args
    },
    summary: ({ path }) => path,
    run: ({ path }, sandbox) => sandbox.makeFolder(path),
  },

  add_file: {
    texts: ({ path }) => [path],
    async outline({ content, encoding: _encoding, ...rest }, field, keep) {
      assertTarget(rest.path, `${field}.path`)
      return { ...rest, ...(await keep(content, `${field}.content`)) }
    },
    summary: ({ path }) => path,
    run: ({ path, ...file }, sandbox) => sandbox.write(path, file),
  },

  add_dir: {
    texts: ({ path, files }) => [path, ...files.map(({ relativePath }) => relativePath)],
    async outline({ files, ...rest }, field, keep) {
      assertTarget(rest.path, `${field}.path`)
      const kept: OutlineArgs['add_dir']['files'] = []
      for (const [at, { content, ...file }] of files.entries()) {
        assertRelative(file.relativePath, `${field}.files.${at}.relativePath`)
        kept.push({ ...file, ...(await keep(content, `${field}.files.${at}.content`)) })
      }
      return { ...rest, files: kept }
    },
    summary: ({ path, files }) => `${path} (${files.length} files)`,
    async run({ path, files }, sandbox) {
      await sandbox.makeFolder(path)
      for (const { relativePath, ...file } of files) await sandbox.write(`${path}/${relativePath}`, file)
    },
  },
}

export function textLengthOf<Type extends StepType>({ type, args }: ManifestStep<Type>): number {
  return kinds[type].texts(args).reduce((sum, text) => sum + text.length, 0)
}

/** Throws `invalid_request` with the field. */
export async function outlineOf<Type extends StepType>(
  { type, args }: ManifestStep<Type>,
  field: string,
  keep: KeepContent,
): Promise<Step> {
  return { type, args: await kinds[type].outline(args, field, keep) } as Step
}

/** What its hash says of a step beside its outline: nothing for the first revision. */
export function revisionOf({ type }: Step): { revision?: number } {
  return defined({ revision: kinds[type].revision })
}

/** One line about a step, for logs. */
export function summaryOf<Type extends StepType>({ type, args }: Step<Type>): string {
  return oneLine(kinds[type].summary(args))
}

/** A text on one line, cut. */
export function oneLine(text: string): string {
  const line = text.replaceAll(/\s+/g, ' ').trim()
  return line.length > 120 ? `${line.slice(0, 119)}…` : line
}

/** Variables that the steps after this one have. */
export function envsOf<Type extends StepType>({ type, args }: Step<Type>): Record<string, string> {
  return kinds[type].envs?.(args) ?? {}
}

export async function runStep<Type extends StepType>({ type, args }: Step<Type>, sandbox: StepSandbox): Promise<void> {
  await kinds[type].run(args, sandbox)
}

function installation(
  commandOf: (packages: string[]) => StepCommand,
): StepKind<'apt_install'> & StepKind<'pip_install'> {
  return {
    texts: ({ packages }) => packages,
    outline(args, field) {
      for (const [index, name] of args.packages.entries()) {
        assertInput(packagePattern.test(name), `${field}.packages.${index}`, 'must be the name of a package')
      }
      return args
    },
    summary: ({ packages }) => packages.join(' '),
    run: ({ packages }, sandbox) => sandbox.run(commandOf(packages)),
  }
}

/** One shell runs all commands, so that a `cd` or a variable lasts. The first one that fails ends it. */
function untilFailure(command: string): string {
  return `{\n${command}\n} || exit $?`
}

/** Takes packages. Python may come without pip, and then with what makes it. */
const pipInstall = `
has_pip() { python3 -m pip --version >/dev/null 2>&1; }
has_pip || python3 -m ensurepip >/dev/null 2>&1
if ! has_pip && command -v apt-get >/dev/null; then
  apt-get update && apt-get install --yes --no-install-recommends python3-pip || exit
fi
if ! has_pip; then
  echo 'pip_install: the image has neither pip for its python3 nor an apt-get that brings it' >&2
  exit 1
fi
exec python3 -m pip install -- "$@"`

/**
 * Takes names and values in turn, for what begins without the variables of the sandbox: PAM and login shells read the two files. In the second a
 * later step goes first, and a variable that the shell has wins. Only PATH comes last: /etc/profile has set it before.
 */
const keepVariables = `
profile=/etc/profile.d/osb-image.sh
mkdir -p /etc/profile.d && touch $profile || exit
while test $# -gt 0; do
  quoted=$(printf %s "$2" | sed "s/'/'\\\\\\\\''/g") || exit
  printf '%s=%s\\n' "$1" "$2" >>/etc/environment || exit
  if test "$1" = PATH; then
    printf 'export PATH=%s\\n' "'$quoted'" >>$profile || exit
  else
    printf 'test -n "\${%s+x}" || export %s=%s\\n' "$1" "$1" "'$quoted'" >$profile.new || exit
    cat $profile >>$profile.new && mv $profile.new $profile || exit
  fi
  shift 2
done`

/** Writes the variables of an image where programs find them that begin without those of a sandbox. Needs a shell; an image without one has no such programs. */
export async function writeVariables(sandbox: BuildSandbox, variables: Record<string, string>): Promise<void> {
  // Neither `/etc/environment` nor a line of `export` can hold a value of several lines.
  const vars = Object.entries(variables).filter(([, value]) => !/[\n\r]/.test(value))
  const { scope, id, files } = sandbox
  const shell = await files.stat(scope.orgId, id, '/bin/sh', asRoot).catch(ignoreNotFound)
  if (vars.length === 0 || shell === undefined) return
  const argv: StepCommand['argv'] = ['/bin/sh', '-c', keepVariables, 'env', ...vars.flat()]
  // A shell without the usual programs beside it is no reason to have no image.
  await sandbox.run({ argv }, { number: 0, type: 'env' }).catch((error: unknown) => {
    if (!isServiceError(error, 'build_failed')) throw error
  })
}

/** A text for `sh -c`. Throws `invalid_request`. */
export function assertCommand(command: string, field: string): void {
  assertInput(command.length <= commandBytesMax, field, `must be at most ${commandBytesMax} bytes`)
  assertInput(command.trim() !== '', field, 'must not be empty')
  assertInput(!command.includes('\0'), field, 'must not contain NUL')
}

/** An absolute path inside the image. The sandbox's own root bounds it. */
function assertTarget(path: string, field: string): void {
  assertPath(path, field)
  assertInput(!path.split('/').includes('..'), field, 'must not contain `..`')
}

function assertRelative(path: string, field: string): void {
  assertInput(!path.startsWith('/'), field, 'must be relative')
  assertPath(`/${path}`, field)
  const cleaned = posix.normalize(path)
  const names = path.split('/')
  assertInput(
    cleaned !== '.' && !cleaned.endsWith('/') && !names.includes('..'),
    field,
    'must name a file in the folder',
  )
}
