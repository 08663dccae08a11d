import { type Command, InvalidArgumentError, Option } from 'commander'
import type { EgressOptions, EgressRule } from '../../../sdk/src/index.ts'
import { UsageError } from '../exit-codes.ts'
import { list } from '../options.ts'

/** Flags of what starts a sandbox: what it may reach, and which secrets it uses. */
export interface EgressFlags {
  secretStore?: string
  allowHost?: string[]
  egress?: 'none' | 'all'
}

export function withEgressFlags(command: Command): Command {
  return command
    .option('--secret-store <name>', 'the secret store whose secrets it uses, see "atoll secret store ls"')
    .option('--allow-host <host>', 'let it reach this host, *.name or *, and no others; may be repeated', list)
    .addOption(new Option('--egress <mode>', 'what it may reach').choices(['none', 'all']))
}

/** What a creation says of egress. Throws for flags that contradict each other. */
export function egressOf({ secretStore, allowHost, egress }: EgressFlags): EgressOptions {
  if (egress === 'none' && allowHost !== undefined)
    throw new UsageError('--egress none and --allow-host exclude each other')
  return { secretStore, egressAllowlist: allowHost, egress: egress && { mode: egress } }
}

/** Collects rules: texts, or objects of the API as JSON, for those with methods and paths. */
export function rules(text: string, known: readonly EgressRule[] = []): EgressRule[] {
  return [...known, rule(text)]
}

export function rule(text: string): EgressRule {
  if (!text.startsWith('{')) return text
  try {
    return JSON.parse(text) as EgressRule
  } catch {
    throw new InvalidArgumentError('It begins like JSON, and is none.')
  }
}
