import { userInfo } from 'node:os'
import type { Command } from 'commander'
import {
  NotFoundError,
  Session,
  type AgentEvent,
  type Atoll,
  type SessionInfo,
  type VolumeMount,
} from '../../../sdk/src/index.ts'
import { checkedId, volumeMount, wholeNumber } from '../options.ts'
import { columns, hint, note, printable, write, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

const titleCharactersMax = 50

interface NewOptions extends Flags {
  user?: string
  model?: string
  harness?: string
  checkpoint?: string
  volume?: VolumeMount[]
}

interface WatchOptions extends Flags {
  after?: number
  once?: boolean
}

export function addSession(program: Command): void {
  const session = program.command('session').description('agent sessions')
  addNew(session)
  addList(session)
  addSteering(session)
  addWatch(session)

  session
    .command('restart')
    .description('go on in a new sandbox after the loss of its own')
    .argument('<session>')
    .option('--checkpoint <checkpoint>', 'the machine to begin on')
    .action(async (id: string, _options: NewOptions, command: Command) => {
      const flags = command.optsWithGlobals<NewOptions>()
      const json = { checkpoint_id: flags.checkpoint }
      await answer(flags, await post(await clientOf(flags), id, 'restart', json))
    })
  session
    .command('rm')
    .description('end sessions, their sandboxes with them')
    .argument('<session...>')
    .action(async (ids: string[], _options: Flags, command: Command) => {
      const client = await clientOf(command.optsWithGlobals<Flags>())
      const paths = ids.map((id) => pathOf(id))
      const ends = await Promise.allSettled(paths.map((path) => client.json('DELETE', path)))
      for (const end of ends) if (end.status === 'rejected') throw end.reason
    })
  session
    .command('export')
    .description('print all that is known of a session, as JSON lines')
    .argument('<session>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const client = await clientOf(command.optsWithGlobals<Flags>())
      const { body } = await client.open('GET', `${pathOf(id)}/export`)
      if (body !== null) for await (const chunk of body) await write(chunk as Uint8Array)
    })
}

function addNew(session: Command): void {
  session
    .command('new')
    .description('start an agent on a prompt and print the id of the session')
    .argument('<prompt>')
    .option('--user <name>', 'whose session it is; default: your name here')
    .option('--model <model>', 'such as anthropic/claude-sonnet-4-5')
    .option('--harness <harness>', 'pi, claude or acp:COMMAND')
    .option('--checkpoint <checkpoint>', 'the machine to begin on')
    .option('--volume <name:/path[:ro]>', 'a volume to mount; may be repeated', volumeMount)
    .action(async (prompt: string, _options: NewOptions, command: Command) => {
      const options = command.optsWithGlobals<NewOptions>()
      const { user, model, harness, checkpoint: checkpoint_id, volume: volumes, ...flags } = options
      const isConfigured = model !== undefined || harness !== undefined
      const json = {
        ...{ prompt, user_id: user ?? userInfo().username, checkpoint_id, volumes },
        ...(isConfigured ? { agent_config: { model, harness } } : {}),
      }
      const client = await clientOf(flags)
      const info = await client.json<SessionInfo>('POST', '/v1/sessions', { json, creates: true })
      await answer(flags, info)
    })
}

function addList(session: Command): void {
  session
    .command('ls')
    .description('list sessions, newest first')
    .option('--user <name>', 'only those of a user')
    .option('--search <text>', 'only those that hold a text')
    .action(async (_options: Flags, command: Command) => {
      const { user: userId, search, ...flags } = command.optsWithGlobals<Flags & { user?: string; search?: string }>()
      const sessions: SessionInfo[] = []
      for await (const info of Session.list({ client: await clientOf(flags), userId, search })) sessions.push(info)
      if (flags.json) return await writeJson(sessions)
      const rows = sessions.map((info) => [
        ...[info.id, info.status, info.activity, info.userId, info.sandboxId],
        (info.project.title || (info.messages[0]?.content ?? '')).slice(0, titleCharactersMax),
      ])
      await writeLine(columns(['ID', 'STATUS', 'ACTIVITY', 'USER', 'SANDBOX', 'TITLE'], rows))
    })
}

function addSteering(session: Command): void {
  session
    .command('send')
    .description('send a message; messages to a working agent wait in their order')
    .argument('<session>')
    .argument('<message>')
    .action(async (id: string, message: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const info = await post(await clientOf(flags), id, 'messages', { message })
      if (flags.json) await writeJson(info)
    })
  session
    .command('interrupt')
    .description('end the turn of the agent')
    .argument('<session>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const info = await post(await clientOf(flags), id, 'interrupt', {})
      if (flags.json) await writeJson(info)
    })
  session
    .command('fork')
    .description('start another session that goes on from here')
    .argument('<session>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      await answer(flags, await post(await clientOf(flags), id, 'fork', {}))
    })
}

function addWatch(session: Command): void {
  session
    .command('watch')
    .description('follow the work of the agent until the session ends')
    .argument('<session>')
    .option('--after <number>', 'begin after this event', wholeNumber)
    .option('--once', 'end with the turn')
    .action(async (id: string, _options: WatchOptions, command: Command) => {
      const flags = command.optsWithGlobals<WatchOptions>()
      const watched = await Session.connect(checkedId(id, 'session_', 'session'), { client: await clientOf(flags) })
      for await (const { sequence, data } of watched.events({ after: flags.after })) {
        if (flags.json) await writeJson({ sequence, data })
        else await writeEvent(data)
        if (flags.once && data.type === 'turn_complete') break
      }
      if (!flags.json) note(watched.previewUrl)
    })
}

/** Writes the text of the agent to standard output, and its other work to standard error. */
async function writeEvent(event: AgentEvent): Promise<void> {
  switch (event.type) {
    case 'assistant':
      for (const block of event.message.content) if (block.type === 'text') await writeLine(printable(block.text))
      return
    case 'tool_use_summary':
      return note(`· ${event.summary}`)
    case 'error':
      return note(`error: ${event.message}`)
    case 'turn_complete':
      return note('· the turn is complete')
    case 'ready':
    case 'configured':
    case 'result':
    default:
      return
  }
}

/** Posts as the owner of the session, whom the session names. */
async function post(client: Atoll, id: string, action: string, json: object): Promise<SessionInfo> {
  const path = pathOf(id)
  const { userId } = await client.json<SessionInfo>('GET', path)
  if (userId === undefined) throw new NotFoundError(`there is no session ${id}`)
  const call = { json: { user_id: userId, ...json }, creates: action !== 'interrupt' }
  return await client.json<SessionInfo>('POST', `${path}/${action}`, call)
}

async function answer(flags: Flags, info: SessionInfo): Promise<void> {
  if (flags.json) return await writeJson(info)
  await writeLine(info.id)
  hint(`atoll session watch ${info.id}; its page: ${info.previewUrl}`)
}

function pathOf(id: string): string {
  return `/v1/sessions/${checkedId(id, 'session_', 'session')}`
}
