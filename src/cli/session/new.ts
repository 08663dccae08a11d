import { userInfo } from 'node:os'
import { text } from 'node:stream/consumers'
import type { Command } from 'commander'
import type { SessionInfo, VolumeMount } from '../../../sdk/src/index.ts'
import { type EgressFlags, egressOf, withEgressFlags } from '../egress/flags.ts'
import { UsageError } from '../exit-codes.ts'
import { checkedCheckpoint, volumeMount } from '../options.ts'
import { clientOf, type Flags } from '../settings.ts'

/** Flags of what begins a session. */
export interface NewFlags extends Flags, EgressFlags {
  name?: string
  user?: string
  model?: string
  harness?: string
  checkpoint?: string
  template?: string
  volume?: VolumeMount[]
}

export function withNewFlags(command: Command): Command {
  const named = command
    .option('--name <name>', 'serves wherever its id does, while it runs')
    .option('--user <name>', 'whose session it is (default: your name here)')
    .option('--model <model>', 'such as anthropic/claude-sonnet-4-5 (default: that of the server)')
    .option('--harness <harness>', 'pi, claude or acp:COMMAND (default: pi)')
    .option('--checkpoint <checkpoint>', 'the machine to begin on: its id, or SANDBOX/NAME')
    .option('--template <image>', 'the image to begin on')
    .option('--volume <name:/path[:ro]>', 'a volume to mount; may be repeated', volumeMount)
  return withEgressFlags(named)
}

export async function beginSession(prompt: string, flags: NewFlags): Promise<SessionInfo> {
  const { name, user = userInfo().username, model, harness, checkpoint, template, volume: volumes } = flags
  if (checkpoint !== undefined && template !== undefined) {
    throw new UsageError('--checkpoint and --template exclude each other: both say what machine it begins on')
  }
  const { secretStore: secret_store, egressAllowlist: hosts, egress } = egressOf(flags)
  const json = {
    ...{ prompt, name, user_id: user, snapshot: template, volumes },
    // A session has one policy, so hosts are its list.
    ...{ secret_store, egress: hosts === undefined ? egress : { allow: hosts } },
    checkpoint_id: checkpoint === undefined ? undefined : checkedCheckpoint(checkpoint),
    agent_config: model === undefined && harness === undefined ? undefined : { model, harness },
  }
  return await (await clientOf(flags)).json<SessionInfo>('POST', '/v1/sessions', { json, creates: true })
}

/** A message that was given, or for `-` what standard input holds. */
export async function messageOf(given: string): Promise<string> {
  return given === '-' ? await text(process.stdin) : given
}
