import { randomBytes } from 'node:crypto'
import type { Command } from 'commander'
import { each } from '../each.ts'
import { UsageError } from '../exit-codes.ts'
import { writeFields } from '../fields.ts'
import { type ListFlags, writeList } from '../list.ts'
import { examples } from '../options.ts'
import { note, when, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'
import { forwarded } from '../webhook/forward.ts'

interface CreateFlags extends Flags {
  name?: string
  type?: string[]
  sandbox?: string
  thin?: boolean
  header?: string[]
}

interface ListenFlags extends Flags {
  forwardTo: string
  type?: string[]
  secret?: string
}

export function addWebhook(program: Command): void {
  const webhook = program
    .command('webhook')
    .description('be called when something happens')
    .addHelpText(
      'after',
      examples(
        'atoll webhook listen --forward-to http://localhost:8080/hook',
        "atoll webhook create https://example.com/hook --type 'sandbox.*'",
      ),
    )
  webhook
    .command('create')
    .description('add a destination, and print its id and its secret')
    .addHelpText('after', examples("atoll webhook create https://example.com/hook --type 'session.*'"))
    .argument('<url>')
    .option('--name <text>', 'for people')
    .option('--type <type...>', 'only these types of events, or prefix.*')
    .option('--sandbox <id>', 'only what happens to this sandbox')
    .option('--thin', 'send ids alone')
    .option('--header <name: value...>', 'a header of each delivery')
    .action(async (url: string, _options: CreateFlags, command: Command) => {
      const flags = command.optsWithGlobals<CreateFlags>()
      const { name, type: eventTypes, sandbox: sandboxId, thin, header } = flags
      const metadata = header && Object.fromEntries(header.map(headerOf))
      const client = await clientOf(flags)
      const made = await client.webhooks.create({
        url,
        name,
        eventTypes,
        sandboxId,
        metadata,
        payload: thin ? 'thin' : undefined,
      })
      if (flags.json) return await writeJson(made)
      await writeLine(made.id)
      await writeLine(made.secret ?? '')
    })
  webhook
    .command('ls')
    .description('list destinations')
    .addHelpText('after', examples('atoll webhook ls'))
    .option('-q, --quiet', 'print ids alone')
    .action(async (_options: ListFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      await writeList(await (await clientOf(flags)).webhooks.list(), flags, {
        ID: (one) => one.id,
        URL: (one) => one.url,
        TYPES: (one) => one.eventTypes.join(' ') || 'all',
        STATE: (one) => (one.enabled ? (one.failingSince === null ? 'ok' : 'failing') : 'disabled'),
        MADE: (one) => when(one.createdAt),
      })
    })
  webhook
    .command('get')
    .description('print what is known of a destination')
    .addHelpText('after', examples('atoll webhook get whk_9m3x1k8f4z2q7w5c'))
    .argument('<id>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      await writeFields(await (await clientOf(flags)).webhooks.get(id), flags)
    })
  webhook
    .command('secret')
    .description('print the secret of a destination')
    .addHelpText('after', examples('atoll webhook secret whk_9m3x1k8f4z2q7w5c'))
    .argument('<id>')
    .option('--rotate', 'make another one; the former signs too for a day')
    .action(async (id: string, _options: Flags, command: Command) => {
      const { rotate, ...flags } = command.optsWithGlobals<Flags & { rotate?: boolean }>()
      const { webhooks } = await clientOf(flags)
      const secret = rotate ? (await webhooks.update(id, { rotateSecret: true })).secret : await webhooks.secret(id)
      if (flags.json) await writeJson({ secret })
      else await writeLine(secret ?? '')
    })
  for (const [verb, enabled, description] of [
    ['enable', true, 'send events again, and those that have waited'],
    ['disable', false, 'let events wait, for a day'],
  ] as const) {
    webhook
      .command(verb)
      .description(description)
      .addHelpText('after', examples(`atoll webhook ${verb} whk_9m3x1k8f4z2q7w5c`))
      .argument('<id...>')
      .action(async (ids: string[], _options: Flags, command: Command) => {
        const flags = command.optsWithGlobals<Flags>()
        const { webhooks } = await clientOf(flags)
        await each(ids, flags, (id) => webhooks.update(id, { enabled }))
      })
  }
  webhook
    .command('rm')
    .description('remove destinations with their deliveries')
    .addHelpText('after', examples('atoll webhook rm whk_9m3x1k8f4z2q7w5c'))
    .argument('<id...>')
    .action(async (ids: string[], _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const { webhooks } = await clientOf(flags)
      await each(ids, flags, (id) => webhooks.delete(id))
    })
  webhook
    .command('test')
    .description('send an example')
    .addHelpText('after', examples('atoll webhook test whk_9m3x1k8f4z2q7w5c'))
    .argument('<id>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const messageId = await (await clientOf(flags)).webhooks.test(id)
      if (flags.json) await writeJson({ messageId })
      else await writeLine(messageId)
    })
  webhook
    .command('deliveries')
    .description('list the newest attempts')
    .addHelpText('after', examples('atoll webhook deliveries whk_9m3x1k8f4z2q7w5c'))
    .argument('<id>')
    .option('-q, --quiet', 'print ids of messages alone')
    .action(async (id: string, _options: ListFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      await writeList(await (await clientOf(flags)).webhooks.deliveries(id), flags, {
        MESSAGE: (one) => one.id,
        EVENT: (one) => one.eventType,
        STATUS: (one) => one.status,
        ANSWER: (one) => one.responseStatusCode ?? one.error,
        TIME: (one) => when(one.timestamp),
        NEXT: (one) => when(one.nextAttemptAt),
      })
    })
  webhook
    .command('redeliver')
    .description('send messages again, under the same ids')
    .addHelpText('after', examples('atoll webhook redeliver whk_9m3x1k8f4z2q7w5c msg_7w5c9m3x1k8f4z2q'))
    .argument('<id>')
    .argument('<message...>')
    .action(async (id: string, messages: string[], _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const { webhooks } = await clientOf(flags)
      await each(messages, flags, (message) => webhooks.redeliver(id, message))
    })
  webhook
    .command('listen')
    .description('post what happens to a port of this machine, signed as deliveries are, until Ctrl-C')
    .addHelpText('after', examples('atoll webhook listen --forward-to http://localhost:8080/hook'))
    .requiredOption('--forward-to <url>', 'where to')
    .option('--type <type...>', 'only these types of events, or prefix.*')
    .option('--secret <secret>', 'sign with this one; default: one is made and printed')
    .action(async (_options: ListenFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListenFlags>()
      if (!URL.canParse(flags.forwardTo))
        throw new UsageError(`--forward-to ${JSON.stringify(flags.forwardTo)} is no URL`)
      const secret = flags.secret ?? `whsec_${randomBytes(24).toString('base64')}`
      if (flags.secret === undefined) note(`deliveries are signed with ${secret}`)
      const client = await clientOf(flags)
      for await (const event of client.events({ after: 'newest', ...(flags.type ? { type: flags.type } : {}) })) {
        const answer = await forwarded(event, flags.forwardTo, secret)
        if (flags.json) await writeJson({ type: event.type, id: event.id, answer })
        else await writeLine(`${event.ts} ${event.type} ${event.subject} → ${answer}`)
      }
    })
}

function headerOf(text: string): [string, string] {
  const at = text.indexOf(':')
  if (at < 1) throw new UsageError(`--header ${JSON.stringify(text)} must be NAME: VALUE`)
  return [text.slice(0, at).trim(), text.slice(at + 1).trim()]
}
