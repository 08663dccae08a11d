import type { Command } from 'commander'
import { Session, type SessionInfo } from '../../../sdk/src/index.ts'
import { chosen, each, type AllFlags } from '../each.ts'
import { writeFields } from '../fields.ts'
import { type ListFlags, writeList } from '../list.ts'
import { checkedCheckpoint, examples, wholeNumber } from '../options.ts'
import { note, when, write, writeJson } from '../output.ts'
import { addComparing } from '../session/compare.ts'
import { addSharing } from '../session/share.ts'
import { addTravelling } from '../session/travel.ts'
import { chat } from '../session/chat.ts'
import { printLog } from '../session/log.ts'
import { beginSession, messageOf, type NewFlags, withNewFlags } from '../session/new.ts'
import { connect, post, sessionPath, writeMade } from '../session/requests.ts'
import { followTurn, messageIn, onStandardError, sendTo, type Sent, writeEnd } from '../session/turn.ts'
import { watch } from '../session/watch.ts'
import { clientOf, type Flags } from '../settings.ts'

const titleCharactersMax = 50
const waitText = 'end with the turn, print the answer alone, and exit with 1 if it failed, 130 if it was interrupted'

interface WaitFlags extends Flags {
  wait?: boolean
}

interface ListOptions extends ListFlags {
  user?: string
  search?: string
}

interface WatchFlags extends Flags {
  after?: number
  once?: boolean
}

export function addSession(program: Command): void {
  const session = program
    .command('session')
    .description('agent sessions')
    .addHelpText('after', examples('atoll session chat', "atoll session new --wait 'Add turtles to /workspace/app'"))
  addTalking(session)
  addReading(session)
  addSteering(session)
  addTravelling(session)
  addComparing(session)
  addSharing(session)
}

function addTalking(session: Command): void {
  withNewFlags(session.command('new'))
    .description('start an agent on a prompt and print the id of the session')
    .addHelpText(
      'after',
      examples("atoll session new 'A page about coral reefs' --name reefs", 'atoll session new --wait - <task.md'),
    )
    .argument('<prompt>', '- reads standard input')
    .option('--wait', waitText)
    .action(async (given: string, _options: NewFlags & WaitFlags, command: Command) => {
      const flags = command.optsWithGlobals<NewFlags & WaitFlags>()
      const prompt = await messageOf(given)
      const info = await beginSession(prompt, flags)
      if (!flags.wait) return await writeMade(info, flags)
      note(`· session ${info.id}; its page: ${info.previewUrl}`)
      const sent = { messageId: messageIn(info, prompt), after: 0 }
      await waitFor(new Session(await clientOf(flags), info), sent, flags)
    })
  session
    .command('send')
    .description('send a message; messages to a working agent wait in their order')
    .addHelpText(
      'after',
      examples(
        "atoll session send reefs 'Add turtles'",
        "answer=$(atoll session send --wait reefs 'What is missing?')",
      ),
    )
    .argument('<session>')
    .argument('<message>', '- reads standard input')
    .option('--wait', waitText)
    .action(async (id: string, given: string, _options: WaitFlags, command: Command) => {
      const flags = command.optsWithGlobals<WaitFlags>()
      const message = await messageOf(given)
      const known = await connect(id, flags)
      if (flags.wait) return await waitFor(known, await sendTo(known, message), flags)
      const info = await known.send(message)
      if (flags.json) await writeJson(info)
    })
  withNewFlags(session.command('chat'))
    .description('talk with an agent, a line for each message; without a session the first line begins one')
    .addHelpText(
      'after',
      `${examples('atoll session chat', 'atoll session chat reefs')}\n\nCtrl-C interrupts the turn, a second one leaves, as Ctrl-D does.`,
    )
    .argument('[session]')
    .action(async (id: string | undefined, _options: NewFlags, command: Command) => {
      const flags = command.optsWithGlobals<NewFlags>()
      const known = id === undefined ? undefined : await connect(id, flags)
      if (known !== undefined) note(`· its page: ${known.previewUrl}`)
      process.exitCode = await chat(known, async (prompt) => {
        const info = await beginSession(prompt, flags)
        note(`· session ${info.id}; its page: ${info.previewUrl}`)
        const sent = { messageId: messageIn(info, prompt), after: 0 }
        return { session: new Session(await clientOf(flags), info), sent }
      })
    })
}

async function waitFor(session: Session, sent: Sent, flags: Flags): Promise<void> {
  const end = await followTurn(session, sent, onStandardError)
  process.exitCode = await writeEnd(end, session, sent, flags)
}

function addReading(session: Command): void {
  session
    .command('ls')
    .description('list sessions, newest first')
    .addHelpText(
      'after',
      examples('atoll session ls --user ada', 'atoll session rm $(atoll session ls -q --user test)'),
    )
    .option('--user <name>', 'only those of a user (default: of all)')
    .option('--search <text>', 'only those that hold a text')
    .option('-q, --quiet', 'print ids alone')
    .action(async (_options: ListOptions, command: Command) => {
      const { user: userId, search, ...flags } = command.optsWithGlobals<ListOptions>()
      const sessions = await Array.fromAsync(Session.list({ client: await clientOf(flags), userId, search }))
      await writeList(sessions, flags, {
        ID: (info) => info.id,
        NAME: (info) => info.name,
        STATE: (info) => info.activity,
        CREATED: (info) => when(info.createdAt),
        CHANGED: (info) => when(info.updatedAt),
        USER: (info) => info.userId,
        SANDBOX: (info) => info.sandboxId,
        TITLE: titleOf,
      })
    })
  session
    .command('get')
    .description('print what is known of a session; "session logs" has what was said')
    .addHelpText('after', examples('atoll session get reefs'))
    .argument('<session>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const info = await (await clientOf(flags)).json<SessionInfo>('GET', sessionPath(id))
      if (flags.json) return await writeJson(info)
      const { messages, events, project, usage, ...rest } = info
      const queued = messages.filter(({ state }) => state === 'queued').length
      const last = events.at(-1)
      await writeFields(
        {
          ...rest,
          title: titleOf(info),
          framework: project.framework || undefined,
          artifacts: project.artifacts.length,
          messages: messages.length,
          waiting: queued === 0 ? undefined : queued,
          lastEvent: last === undefined ? undefined : `${last.message} (${when(last.createdAt)})`,
          usage,
        },
        flags,
      )
    })
  session
    .command('logs')
    .description('print what was said and done so far')
    .addHelpText('after', examples('atoll session logs reefs', 'atoll session logs reefs --follow'))
    .argument('<session>')
    .option('-f, --follow', 'go on with what comes, until the session ends')
    .action(async (id: string, _options: Flags & { follow?: boolean }, command: Command) => {
      const flags = command.optsWithGlobals<Flags & { follow?: boolean }>()
      const known = await connect(id, flags)
      const after = await printLog(known, flags.json ?? false)
      if (flags.follow) await watch(known, { after, json: flags.json })
    })
  session
    .command('watch')
    .description('follow the work of the agent from the beginning until the session ends')
    .addHelpText('after', examples('atoll session watch reefs --once'))
    .argument('<session>')
    .option('--after <number>', 'begin after this event (default: with the first)', wholeNumber)
    .option('--once', 'end with the turn, or behind the last one when none is under way')
    .action(async (id: string, _options: WatchFlags, command: Command) => {
      const flags = command.optsWithGlobals<WatchFlags>()
      const known = await connect(id, flags)
      await watch(known, flags)
      if (!flags.json) note(known.previewUrl)
    })
  session
    .command('export')
    .description('print all that is known of a session, as JSON lines')
    .addHelpText('after', examples('atoll session export reefs >session.jsonl'))
    .argument('<session>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const client = await clientOf(command.optsWithGlobals<Flags>())
      const { body } = await client.open('GET', `${sessionPath(id)}/export`)
      if (body !== null) for await (const chunk of body) await write(chunk as Uint8Array)
    })
}

function addSteering(session: Command): void {
  session
    .command('interrupt')
    .description('end the turn of the agent')
    .addHelpText('after', examples('atoll session interrupt reefs'))
    .argument('<session>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const info = await post(await clientOf(flags), id, 'interrupt', {})
      if (flags.json) await writeJson(info)
    })
  session
    .command('restart')
    .description('go on in a new sandbox after the loss of its own')
    .addHelpText('after', examples('atoll session restart reefs'))
    .argument('<session>')
    .option('--checkpoint <checkpoint>', 'the machine to begin on, its id or SANDBOX/NAME (default: an empty one)')
    .action(async (id: string, _options: NewFlags, command: Command) => {
      const flags = command.optsWithGlobals<NewFlags>()
      const checkpoint_id = flags.checkpoint === undefined ? undefined : checkedCheckpoint(flags.checkpoint)
      await writeMade(await post(await clientOf(flags), id, 'restart', { checkpoint_id }), flags)
    })
  session
    .command('rm')
    .description('end sessions, their sandboxes with them')
    .addHelpText('after', examples('atoll session rm reefs'))
    .argument('[session...]')
    .option('--all', 'every session that runs')
    .option('--yes', 'confirms --all')
    .action(async (ids: string[], _options: AllFlags, command: Command) => {
      const flags = command.optsWithGlobals<AllFlags>()
      const client = await clientOf(flags)
      const running = async () => {
        const found: string[] = []
        for await (const { id, status } of Session.list({ client })) if (status === 'running') found.push(id)
        return found
      }
      const paths = (await chosen(ids, flags, 'session', running)).map((id) => sessionPath(id))
      await each(paths, flags, (path) => client.json('DELETE', path))
    })
}

function titleOf({ project, messages }: SessionInfo): string {
  return (project.title || (messages[0]?.content ?? '')).slice(0, titleCharactersMax)
}
