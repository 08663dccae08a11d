import { constants } from 'node:os'
import { posix } from 'node:path'
import { defined } from '../../lib/defined.ts'
import { userPattern } from '../../sandbox/index.ts'
import { ExpansionBudget } from './budget.ts'
import { expandHeredoc, expandWord, type Expansion } from './expand.ts'
import { quoted, refused } from './fault.ts'
import { contentOf } from './heredoc.ts'
import type { ArgInstruction, Command, CopyInstruction, Instruction, RunInstruction } from './instruction.ts'
import { mountOf } from './mounts.ts'
import type { CopyOperation, CopySource, Operation, RunOperation, StageState, Written } from './operations.ts'
import { checkName } from './parse.ts'
import { pathDefault } from './path.ts'
import { portsOf } from './ports.ts'
import type { PlannedStage } from './stages.ts'
import { withCmd, withConfig, withEntrypoint, withLabels, withPorts, withVariables, withVolumes } from './state.ts'

/** The longest path and the longest argument that the kernel takes. */
const pathCharsMax = 4096
const wordBytesMax = 128 * 1024 - 1
const symbolicModePattern = /^[ugoa]*(?:[-+=][rwxXstugo]*)+(?:,[ugoa]*(?:[-+=][rwxXstugo]*)+)*$/
const remotePattern = /^(?:[a-z][a-z0-9+.-]*:\/\/|git@)/i

/**
 * What a stage asks for, one operation after the other, and what its state is behind each. The state of a base is needed first, since its variables
 * count. Nothing of it is changed: a stage may be evaluated any number of times, with the same result.
 */
export class StageEvaluation {
  #state: StageState
  #hasOwnCmd = false
  readonly #stage: PlannedStage
  readonly #budget = new ExpansionBudget()

  constructor(stage: PlannedStage, initial: StageState) {
    this.#stage = stage
    this.#state = initial
  }

  /** Behind the operation that came last; at the end, that of the stage. */
  get state(): StageState {
    return this.#state
  }

  /** To be read once. Throws `invalid_request` with the line of an instruction that has no meaning with the values of its variables. */
  *operations(): Generator<Operation, void, void> {
    for (const instruction of this.#stage.instructions) {
      const operation = this.#evaluate(instruction)
      if (operation !== undefined) yield operation
    }
  }

  #evaluate(instruction: Instruction): Operation | undefined {
    const { line, summary } = instruction
    const expansion = this.#expansion(line)
    const expand = (word: string) => expandWord(word, expansion)
    switch (instruction.type) {
      case 'run':
        return this.#run(instruction, expand)
      case 'copy':
      case 'add':
        return this.#copy(instruction, expansion)
      case 'workdir': {
        const path = posix.resolve(this.#cwd, expand(instruction.word))
        this.#state = { ...this.#state, cwd: checkedPath(path, line) }
        return { type: 'workdir', line, summary, path, ...this.#user }
      }
      case 'arg':
        this.#declare(instruction)
        return undefined
      case 'env': {
        // All of an instruction is expanded with what was set before it.
        const pairs = instruction.pairs.map(({ name, value }) => [expand(name), expand(value)] as const)
        for (const [name] of pairs) checkName('ENV', name, line)
        this.#state = withVariables(this.#state, 'envs', Object.fromEntries(pairs), line)
        return undefined
      }
      case 'label': {
        const pairs = instruction.pairs.map(({ name, value }) => [expand(name), expand(value)] as const)
        if (pairs.some(([name]) => name === '')) throw refused(line, 'a label has no name')
        this.#state = withLabels(this.#state, Object.fromEntries(pairs), line)
        return undefined
      }
      case 'user': {
        const user = expand(instruction.word)
        if (!userPattern.test(user)) throw refused(line, `USER takes a name or an id, and :GROUP, not ${quoted(user)}`)
        this.#state = { ...this.#state, user }
        return undefined
      }
      case 'expose': {
        const words = instruction.words.flatMap((word) => expand(word).split(/\s+/))
        const ports = words
          .filter((word) => word !== '')
          .flatMap((word) => {
            const range = portsOf(word, line)
            this.#budget.takeChars(range.length * word.length, line)
            return range
          })
        this.#state = withPorts(this.#state, ports, line)
        return undefined
      }
      case 'volume': {
        const paths = instruction.words.map((word) => checkedPath(expand(word), line))
        if (paths.some((path) => path.trim() === '')) throw refused(line, 'a VOLUME is empty')
        this.#state = withVolumes(this.#state, paths, line)
        return undefined
      }
      case 'stopsignal': {
        const signal = expand(instruction.word)
        if (!isSignal(signal)) throw refused(line, `STOPSIGNAL takes a signal, not ${quoted(signal)}`)
        this.#state = withConfig(this.#state, { stopSignal: signal })
        return undefined
      }
      case 'shell':
        this.#state = { ...withConfig(this.#state, { shell: instruction.words }), shell: instruction.words }
        return undefined
      case 'healthcheck':
        this.#state = withConfig(this.#state, { healthcheck: instruction.healthcheck })
        return undefined
      case 'cmd':
        this.#hasOwnCmd = true
        this.#state = withCmd(this.#state, this.#argv(instruction.command))
        return undefined
      case 'entrypoint':
        this.#state = withEntrypoint(this.#state, this.#argv(instruction.command), this.#hasOwnCmd)
        return undefined
    }
  }

  #run({ line, summary, command, script, mounts }: RunInstruction & Written, expand: (word: string) => string) {
    const content = script === undefined ? undefined : contentOf(script)
    const isProgram = content?.startsWith('#!') === true
    const [first, ...others] = this.#state.shell
    const [program = first, ...words] =
      content === undefined ? this.#argv(command) : [first, ...others, ...(isProgram ? [] : [content])]
    for (const word of [program, ...words])
      if (Buffer.byteLength(word) > wordBytesMax)
        throw refused(
          line,
          `the command has a word of more than ${wordBytesMax} bytes: copy it as a file, or begin it with #!`,
        )
    const operation: RunOperation = {
      type: 'run',
      line,
      summary,
      argv: [program, ...words],
      ...(isProgram ? { script: content } : {}),
      // ENV wins over ARG.
      envs: { ...this.#state.args, ...this.#state.envs },
      proxies: this.#proxies(),
      cwd: this.#cwd,
      ...this.#user,
      mounts: mounts.map((options) => mountOf(options, { line, cwd: this.#cwd, expand })),
    }
    return operation
  }

  #copy(instruction: CopyInstruction & Written, expansion: Expansion): CopyOperation {
    const { type, line, summary, from, keepsParents, unpacks } = instruction
    const name = type.toUpperCase()
    const expand = (word: string) => expandWord(word, expansion)
    const sources = instruction.sources.map((source): CopySource => {
      if ('word' in source) return { pattern: sourceOf(expand(source.word), name, line) }
      const content = contentOf(source.heredoc)
      return {
        name: fileName(source.heredoc.name, line),
        content: source.heredoc.expands ? expandHeredoc(content, expansion) : content,
      }
    })
    const target = this.#target(expand(instruction.target), line)
    if (sources.length > 1 && !target.endsWith('/'))
      throw refused(line, `the target of ${name} with several sources is a folder: ${quoted(`${target}/`)}`)
    const owner = instruction.owner === undefined ? '' : expand(instruction.owner)
    if (owner !== '' && !isOwner(owner))
      throw refused(line, `--chown takes a name or an id, and :GROUP, not ${quoted(owner)}`)
    const mode = instruction.mode === undefined ? '' : expand(instruction.mode)
    if (mode !== '' && !isMode(mode))
      throw refused(line, `--chmod takes an octal or a symbolic mode, not ${quoted(mode)}`)
    return {
      type,
      line,
      summary,
      ...defined({ from }),
      sources,
      target,
      ...(owner === '' ? {} : { owner }),
      ...(mode === '' ? {} : { mode }),
      excludes: instruction.excludes.map((word) => checkedPath(expand(word), line)),
      keepsParents,
      unpacks,
    }
  }

  /** With a `/` at its end where it is a folder for sure. */
  #target(written: string, line: number): string {
    if (written === '') throw refused(line, 'the target is empty')
    const path = checkedPath(posix.resolve(this.#cwd, written), line)
    const isFolder = /(?:^|\/)\.{0,2}$/.test(written)
    return isFolder && path !== '/' ? `${path}/` : path
  }

  /** An argument given to the build, or its default here, or what the same name has before the first `FROM`. */
  #declare({ line, args }: ArgInstruction & Written): void {
    const { given, global } = this.#stage.arguments
    const added = new Map<string, string>()
    const expansion = this.#expansion(line, added)
    for (const { name, value } of args) {
      const inherited = Object.hasOwn(global, name) ? global[name] : undefined
      const known = Object.hasOwn(given, name) ? given[name] : undefined
      const result = known ?? (value === undefined ? inherited : expandWord(value, expansion))
      if (result !== undefined) added.set(name, result)
    }
    this.#state = withVariables(this.#state, 'args', Object.fromEntries(added), line)
  }

  #argv(command: Command): readonly string[] {
    if (typeof command !== 'string') return command
    return command === '' ? [] : [...this.#state.shell, command]
  }

  #proxies(): Record<string, string> {
    const { envs, args } = this.#state
    const entries = Object.entries(this.#stage.arguments.proxies)
    return Object.fromEntries(entries.filter(([name]) => !Object.hasOwn(envs, name) && !Object.hasOwn(args, name)))
  }

  /** `declared`: arguments of the instruction itself. */
  #expansion(line: number, declared?: ReadonlyMap<string, string>): Expansion {
    const { envs, args } = this.#state
    const valueOf = (name: string): string | undefined => {
      if (Object.hasOwn(envs, name)) return envs[name]
      if (declared?.has(name) === true) return declared.get(name)
      if (Object.hasOwn(args, name)) return args[name]
      return name === 'PATH' ? pathDefault : undefined
    }
    return { line, escape: this.#stage.escape, budget: this.#budget, valueOf }
  }

  get #cwd(): string {
    return this.#state.cwd ?? '/'
  }

  get #user(): { user?: string } {
    return this.#state.user === undefined ? {} : { user: this.#state.user }
  }
}

function sourceOf(pattern: string, name: string, line: number): string {
  if (remotePattern.test(pattern)) {
    const why = name === 'ADD' ? 'is not supported: fetch it in a RUN' : 'is nothing for COPY'
    throw refused(line, `the remote source ${quoted(pattern)} ${why}`)
  }
  if (pattern === '') throw refused(line, `a source of ${name} is empty`)
  return checkedPath(pattern, line)
}

function fileName(name: string, line: number): string {
  if (name.includes('/') || name === '.' || name === '..')
    throw refused(line, `the word ${quoted(name)} of a heredoc is no name of a file`)
  return name
}

function checkedPath(path: string, line: number): string {
  if (path.length > pathCharsMax) throw refused(line, `a path is longer than ${pathCharsMax} characters`)
  return path
}

/** A user, a group behind a colon, or both; a user with a colon alone has its own group. */
function isOwner(text: string): boolean {
  return userPattern.test(text.replace(/:$/, '')) || (/^:[^:]*$/.test(text) && userPattern.test(text.slice(1)))
}

function isMode(text: string): boolean {
  return /^[0-7]{1,5}$/.test(text)
    ? Number.parseInt(text, 8) <= 0o7777
    : text.length <= 64 && symbolicModePattern.test(text)
}

function isSignal(text: string): boolean {
  if (/^\d{1,2}$/.test(text)) return Number(text) >= 1 && Number(text) <= 64
  const name = text.toUpperCase().replace(/^SIG/, '')
  return /^RT(?:MIN(?:\+\d{1,2})?|MAX(?:-\d{1,2})?)$/.test(name) || Object.hasOwn(constants.signals, `SIG${name}`)
}
