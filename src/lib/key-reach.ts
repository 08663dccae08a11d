/** The part of its organisation that a key with a name prefix sees and makes: what is named so, and what it has made itself. */
export interface KeyReach {
  namePrefix: string
  keyId: string
}

export function isWithin({ namePrefix, keyId }: KeyReach, thing: { name?: string; keyId?: string }): boolean {
  return thing.name?.startsWith(namePrefix) === true || thing.keyId === keyId
}
