import {
  hostdFaultSchema,
  hostdProtocol,
  hostdRequestSchema,
  type HostdFaultCode,
  type HostdRequest,
  type HostToolRequest,
  type ProgramRequest,
} from '../../protocol/hostd.ts'
import { ServiceError } from '../../errors.ts'
import { CommandError, run, type CommandOptions, type Run } from '../command.ts'

/** What a program is started with beside its {@link CommandOptions}; `groups` are none by default. */
export type ProgramPlace = Partial<Pick<ProgramRequest, 'hide' | 'keep' | 'groups'>>

/** Runs programs of the host, and asks `atoll-hostd`. */
export interface HostTool {
  run: Run
  /** Does one and returns what it tells. Throws {@link HostdError}, and `CommandError` where it was not done. */
  runTool(request: HostToolRequest, options?: CommandOptions): Promise<string>
  /** Runs a program with other mounts or in a control group, and returns its standard output. Throws `CommandError`. */
  runProgram(argv: readonly string[], place: ProgramPlace, options?: CommandOptions): Promise<string>
}

/** hostd could not do a request. `stderr` is its reason, which names the object. */
export class HostdError extends CommandError {
  readonly code: HostdFaultCode

  constructor(argv: readonly string[], { code, message }: { code: HostdFaultCode; message: string }) {
    super(argv, code, message, 1)
    this.name = 'HostdError'
    this.code = code
  }
}

/** `tool`, the program, with one process for each request, started like any program of the host. */
export function hostToolAt(tool: string): HostTool {
  return {
    run,
    runTool: async (request, options) => {
      // Every user of the machine can read the arguments of a process.
      if (request.op === 'attach-secret') throw new ServiceError('unavailable', 'hostd does not serve')
      return await asHostdError(request, run(toolCommand(tool, request), options))
    },
    runProgram: (argv, place, options) => run(toolCommand(tool, programRequest(argv, place)), options),
  }
}

/** The command line that does one request. */
export function toolCommand(tool: string, request: HostToolRequest | ProgramRequest): [string, 'perform', string] {
  return [tool, 'perform', JSON.stringify({ protocol: hostdProtocol, ...hostdRequestSchema.parse(request) })]
}

/**
 * The same for a script of the host, with `variables` of the shell in the place of numbers that are 0. No text of the request has a quote:
 * such scripts have paths of checked ids.
 */
export function shellCommand(tool: string, request: HostToolRequest, variables: Record<string, string> = {}): string {
  const [program, verb, text] = toolCommand(tool, request)
  const filled = Object.entries(variables).reduce(
    (rest, [name, variable]) => rest.replace(`"${name}":0`, () => `"${name}":'"${variable}"'`),
    text,
  )
  return `'${program}' ${verb} '${filled}'`
}

export function programRequest(
  argv: readonly string[],
  { groups = [], ...mounts }: ProgramPlace,
  { input = '', detached = false }: Pick<CommandOptions, 'input' | 'detached'> = {},
): ProgramRequest {
  return { op: 'start-program', argv, input, detached, groups, ...mounts }
}

/** The answer to a request, with a failure of hostd as one. */
export async function asHostdError({ op }: HostdRequest, answer: Promise<string>): Promise<string> {
  try {
    return await answer
  } catch (error) {
    if (!(error instanceof CommandError)) throw error
    const name = ['atoll-hostd', op]
    const fault = error.exitCode === 1 ? faultIn(error.stderr) : undefined
    if (fault !== undefined) throw new HostdError(name, fault)
    throw new CommandError(name, error.outcome, error.stderr, error.exitCode, { cause: error })
  }
}

/** What the standard error of a failed request says; undefined where it was not done. */
export function faultIn(stderr: string): { code: HostdFaultCode; message: string } | undefined {
  try {
    return hostdFaultSchema.parse(JSON.parse(stderr))
  } catch {
    return undefined
  }
}
