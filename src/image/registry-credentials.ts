import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { parseImageReference } from '../lib/image-reference.ts'
import { listed } from '../lib/listed.ts'
import type { Sealer } from '../lib/sealed.ts'
import { assertInput } from '../sandbox/index.ts'

/** How an organisation logs in to a registry, without the password. */
export interface RegistryLogin {
  host: string
  username: string
  updatedAt: Date
}

/** A row: the password is sealed. */
export interface RegistryCredential extends RegistryLogin {
  orgId: string
  sealedPassword: string
}

/** The port to the rows. Each method is one transaction, durable when it returns. */
export interface RegistryCredentialStore {
  /** Replaces those of the host. */
  putCredential(credential: RegistryCredential): Promise<void>
  credential(orgId: string, host: string): Promise<RegistryCredential | undefined>
  /** By host. */
  listCredentials(orgId: string): Promise<RegistryCredential[]>
  deleteCredential(orgId: string, host: string): Promise<boolean>
}

export interface Credentials {
  username: string
  password: string
}

interface RegistryCredentialsContext {
  store: RegistryCredentialStore
  sealer: Sealer
  /** Of the registries that the operator allows. */
  hosts: readonly string[]
}

const usernameCharsMax = 256
/** Tokens of cloud registries have some kilobytes. */
const passwordCharsMax = 16 * 1024

/** The credentials of organisations at registries. A password is in no answer, no log and, but sealed, in no row. */
export class RegistryCredentials {
  readonly #context: RegistryCredentialsContext

  constructor(context: RegistryCredentialsContext) {
    this.#context = context
  }

  /** Throws `invalid_request` for a registry that is not allowed, and for what cannot be sent by basic authentication. */
  async put(orgId: string, given: string, { username, password }: Credentials): Promise<RegistryLogin> {
    const host = given.toLowerCase()
    const { store, sealer, hosts } = this.#context
    const allowed = hosts.length === 0 ? 'there are none' : `those are ${listed(hosts, hosts.length)}`
    assertInput(hosts.includes(host), 'host', `must be a registry that ATOLL_REGISTRIES allows: ${allowed}`)
    const isName = /^[^:\p{Cc}]+$/u.test(username) && username.length <= usernameCharsMax
    assertInput(isName, 'username', `must be 1 to ${usernameCharsMax} characters without a colon`)
    const isPassword = /^\P{Cc}+$/u.test(password) && password.length <= passwordCharsMax
    assertInput(isPassword, 'password', `must be 1 to ${passwordCharsMax} characters, none of them a control character`)
    const sealedPassword = sealer.seal(password, { orgId, purpose: purposeOf(host) })
    const credential = { orgId, host, username, sealedPassword, updatedAt: new Date() }
    await store.putCredential(credential)
    return loginOf(credential)
  }

  /** By host. */
  async list(orgId: string): Promise<RegistryLogin[]> {
    return (await this.#context.store.listCredentials(orgId)).map(loginOf)
  }

  /** Throws `not_found`. */
  async get(orgId: string, host: string): Promise<RegistryLogin> {
    const credential = await this.#context.store.credential(orgId, host.toLowerCase())
    if (credential === undefined) throw noCredentials(host)
    return loginOf(credential)
  }

  /** Throws `not_found`. */
  async delete(orgId: string, host: string): Promise<void> {
    if (!(await this.#context.store.deleteCredential(orgId, host.toLowerCase()))) throw noCredentials(host)
  }

  /** A reference with what the organisation has for its registry. Throws `unavailable` when the key of the installation is another. */
  async withCredentials(orgId: string, reference: string): Promise<{ reference: string; credentials?: Credentials }> {
    const host = parseImageReference(reference)?.registry
    const credentials = host === undefined ? undefined : await this.#find(orgId, host)
    return { reference, ...defined({ credentials }) }
  }

  async #find(orgId: string, host: string): Promise<Credentials | undefined> {
    const { store, sealer } = this.#context
    const credential = await store.credential(orgId, host)
    if (credential === undefined) return undefined
    const password = sealer.open(credential.sealedPassword, { orgId, purpose: purposeOf(host) })
    if (password !== undefined) return { username: credential.username, password }
    const why = 'the data directory has another sealing-secret than the one that they were stored with'
    throw new ServiceError('unavailable', `the credentials of ${host} cannot be read: ${why}; store them again`)
  }
}

function purposeOf(host: string): string {
  return `registry ${host}`
}

function loginOf({ host, username, updatedAt }: RegistryCredential): RegistryLogin {
  return { host, username, updatedAt }
}

function noCredentials(host: string): ServiceError {
  return new ServiceError('not_found', `there are no credentials of ${host}`)
}
