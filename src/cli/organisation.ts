import { type Atoll, Audit, type Keys } from '../../sdk/src/index.ts'
import { UsageError } from './exit-codes.ts'
import { clientOf, type Flags } from './settings.ts'

/** A client with the operator's key: that of `--key`, of `ATOLL_OPERATOR_KEY`, or the one that is saved. */
export async function operatorClient(flags: Flags, env: NodeJS.ProcessEnv = process.env): Promise<Atoll> {
  const key = flags.key ?? (env['ATOLL_OPERATOR_KEY'] || undefined)
  return await clientOf({ ...flags, ...(key === undefined ? {} : { key }) })
}

/** The id of an organisation that is given by id or name. */
export async function organisationId(client: Atoll, given: string): Promise<string> {
  if (given.startsWith('org_')) return given
  const found: string[] = []
  for await (const { id, name } of client.organisations.list()) if (name === given) found.push(id)
  const [id, another] = found
  if (id === undefined) throw new UsageError(`no organisation is named ${JSON.stringify(given)}`)
  if (another !== undefined)
    throw new UsageError(`several organisations are named ${JSON.stringify(given)}: give the id`)
  return id
}

export async function organisationKeys(given: string, flags: Flags): Promise<Keys> {
  const client = await operatorClient(flags)
  return client.organisations.keys(await organisationId(client, given))
}

export async function organisationAudit(given: string, flags: Flags): Promise<Audit> {
  const client = await operatorClient(flags)
  return new Audit(client, `/api/orgs/${encodeURIComponent(await organisationId(client, given))}/audit`)
}
