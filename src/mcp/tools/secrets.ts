import { z } from 'zod'
import type { Atoll } from '../../../sdk/src/index.ts'
import { makes, reads, removes, sets, tool } from '../tool.ts'

const store = z.string().min(1).describe('Name of the store')
const hosts = z.array(z.string())
const listMax = 100

/** None takes or shows a value: what a model reads, it may write anywhere. Values are set by people, `atoll secret set`. */
export const secretTools = [
  tool({
    name: 'secret_list',
    title: 'List secrets',
    description: 'List secret stores, each with the names and hosts of its secrets. No tool shows or sets a value.',
    input: z.object({}),
    output: z.object({
      stores: z.array(
        z.object({
          store: z.string(),
          is_default: z.boolean(),
          egress_allowlist: hosts,
          secrets: z.array(z.object({ name: z.string(), allowed_hosts: hosts })),
        }),
      ),
    }),
    hints: reads,
    async run(_input, { client, signal }) {
      const stores = (await client.secrets.listStores({ signal })).slice(0, listMax)
      const lists = []
      for (const { id, name, isDefault, egressAllowlist } of stores) {
        const secrets = await client.secrets.list(id, { signal })
        lists.push({
          ...{ store: name, is_default: isDefault, egress_allowlist: egressAllowlist },
          secrets: secrets.map((one) => ({ name: one.name, allowed_hosts: one.allowedHosts })),
        })
      }
      return { stores: lists }
    },
  }),
  tool({
    name: 'secret_store_create',
    title: 'Create a secret store',
    description: 'Make an empty secret store. A person sets its values with `atoll secret set STORE NAME`.',
    input: z.object({
      store,
      egress_allowlist: hosts.optional().describe('Sandboxes with the store reach these hosts alone; default any'),
    }),
    output: z.object({ store: z.string() }),
    hints: makes,
    async run({ store: name, egress_allowlist: egressAllowlist }, { client, signal }) {
      const made = await client.secrets.createStore({ name, egressAllowlist, signal })
      return { store: made.name }
    },
  }),
  tool({
    name: 'secret_store_allow',
    title: 'Set the hosts of a secret store',
    description:
      'Set which hosts sandboxes with the store reach. An empty list is no restriction. Running ones follow.',
    input: z.object({ store, egress_allowlist: hosts }),
    output: z.object({ egress_allowlist: hosts }),
    hints: sets,
    async run({ store: name, egress_allowlist: egressAllowlist }, { client, signal }) {
      const id = await idOf(client, name, signal)
      const updated = await client.secrets.updateStore(id, { egressAllowlist, signal })
      return { egress_allowlist: updated.egressAllowlist }
    },
  }),
  tool({
    name: 'secret_delete',
    title: 'Delete a secret',
    description: 'Delete a secret of a store for good. Running sandboxes lose it.',
    input: z.object({ store, name: z.string().min(1) }),
    output: z.object({ deleted: z.string() }),
    hints: removes,
    async run({ store: of, name }, { client, signal }) {
      await client.secrets.delete(await idOf(client, of, signal), name, { signal })
      return { deleted: name }
    },
  }),
]

async function idOf({ secrets }: Atoll, name: string, signal: AbortSignal): Promise<string> {
  return (await secrets.storeNamed(name, { signal })).id
}
