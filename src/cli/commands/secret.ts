import type { Command } from 'commander'
import type { SecretInfo } from '../../../sdk/src/index.ts'
import { defined } from '../../lib/defined.ts'
import { each } from '../each.ts'
import { UsageError } from '../exit-codes.ts'
import { writeFields } from '../fields.ts'
import { hiddenInput } from '../hidden-input.ts'
import { type ListFlags, writeList } from '../list.ts'
import { examples } from '../options.ts'
import { operatorClient } from '../organisation.ts'
import { note, when, writeJson } from '../output.ts'
import { storeId, storeCommands } from '../secret-store.ts'
import { clientOf, type Flags } from '../settings.ts'

interface SetFlags extends Flags {
  fromEnv?: string
  host?: string[]
  in?: SecretInfo['in']
  placeholder?: string
  sign?: 'aws-sigv4'
  accessKeyId?: string
}

export function addSecret(program: Command): void {
  const secret = program
    .command('secret')
    .description(
      'secrets that never enter a sandbox: it has placeholders, and the server sends the value to the hosts of each',
    )
    .addHelpText(
      'after',
      examples(
        'atoll secret store create production',
        'atoll secret set production GITHUB_TOKEN --host api.github.com --placeholder github < token',
      ),
    )
  storeCommands(secret)
  secret
    .command('set')
    .description(
      'set a secret, also for sandboxes that run; its value is asked for on a terminal, else it is standard input',
    )
    .addHelpText(
      'after',
      examples(
        'atoll secret set production OPENAI_API_KEY --host api.openai.com --placeholder openai < key',
        'atoll secret set production NPM_TOKEN --from-env NPM_TOKEN --host registry.npmjs.org',
      ),
    )
    .argument('<store>', 'its name or id')
    .argument('<name>', 'the variable in which a sandbox has the placeholder')
    .option('--from-env <variable>', 'take the value of this variable')
    .option('--host <host...>', 'where the value is sent: a host name, *.name or *')
    .option('--in <part...>', 'parts of a request in which it is put: header, basic, body, query, path')
    .option('--placeholder <shape>', 'how placeholders look: openai, github …, or a pattern such as key-{32}')
    .option('--sign <type>', 'sign requests with it in place of sending it: aws-sigv4')
    .option('--access-key-id <name>', 'the secret that holds the id of the access key; default AWS_ACCESS_KEY_ID')
    .action(async (store: string, name: string, _options: SetFlags, command: Command) => {
      const flags = command.optsWithGlobals<SetFlags>()
      const { host: allowedHosts, in: parts, placeholder, sign: type, accessKeyId } = flags
      if (type === undefined && accessKeyId !== undefined) throw new UsageError('--access-key-id goes with --sign')
      const client = await clientOf(flags)
      const id = await storeId(client, store)
      const value = await valueOf(name, flags)
      const set = await client.secrets.set(id, name, value, {
        ...{ allowedHosts, in: parts, placeholder },
        sign: type && { type, ...defined({ accessKeyId }) },
      })
      if (flags.json) return await writeJson(set)
      const { refreshed, failures, isComplete } = set
      note(`${name} is set; sandboxes that use it from now on: ${refreshed}${isComplete ? '' : ', others follow'}`)
      for (const { sandboxId, error } of failures) note(`${sandboxId} goes on as before: ${error}`)
    })
  secret
    .command('ls')
    .description('list the secrets of a store, without their values')
    .addHelpText('after', examples('atoll secret ls production'))
    .argument('<store>', 'its name or id')
    .option('-q, --quiet', 'print names alone')
    .action(async (store: string, _options: ListFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      const client = await clientOf(flags)
      await writeList(await client.secrets.list(await storeId(client, store)), flags, {
        NAME: (one) => one.name,
        HOSTS: (one) => one.allowedHosts.join(' ') || 'those of the sandbox',
        IN: (one) => (one.sign === undefined ? one.in.join(' ') : one.sign.type),
        PLACEHOLDER: (one) => one.placeholder,
        SET: (one) => when(one.updatedAt),
      })
    })
  secret
    .command('rm')
    .description('delete secrets, which sandboxes that run lose')
    .addHelpText('after', examples('atoll secret rm production GITHUB_TOKEN'))
    .argument('<store>', 'its name or id')
    .argument('<name...>')
    .action(async (store: string, names: string[], _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const client = await clientOf(flags)
      const id = await storeId(client, store)
      await each(names, flags, (name) => client.secrets.delete(id, name))
    })
  secret
    .command('rotate-key')
    .description("seal all that is stored with another key, with the operator's key (ATOLL_OPERATOR_KEY)")
    .addHelpText('after', examples('atoll secret rotate-key'))
    .action(async (_options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      await writeFields(await (await operatorClient(flags)).secrets.rotateKey(), flags)
    })
}

/** Never from an argument, which other users of the machine see. */
async function valueOf(name: string, { fromEnv }: SetFlags): Promise<string> {
  if (fromEnv !== undefined) {
    const value = process.env[fromEnv]
    if (!value) throw new UsageError(`the variable ${fromEnv} is not set`)
    return value
  }
  const value = (await hiddenInput(`Value of ${name}: `)).replace(/\r?\n$/, '')
  if (value === '') throw new UsageError('no value was given: it is standard input, or --from-env VARIABLE')
  return value
}
