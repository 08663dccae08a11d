import type { ChainSecret, SealedSecret, Store } from './secret.ts'

/** The layers of a sandbox: the default stores of its organisation by name, then the named ones, then those of creations. */
export interface ChainOf {
  orgId: string
  /** Names, inherited ones first. */
  stores: readonly string[]
  /** Ids of what `putInline` has put away, the latest last. */
  inline: readonly string[]
}

export interface Chain<OneSecret> {
  /** In the order of the layers, hidden ones left out. A store that is in several layers is in the last of them. */
  stores: { id: string; name: string; egressAllowlist: string[] }[]
  /** Names of which there is no store. */
  missing: string[]
  /** Each name once: the last layer that has it wins. */
  secrets: OneSecret[]
}

export interface ChainStore {
  store: Store
  hiddenId?: string
  secrets: SealedSecret[]
}

export function chainOf(
  { stores: names, inline }: ChainOf,
  found: readonly ChainStore[],
): Chain<{ secret: ChainSecret; sealed: SealedSecret }> {
  const shown = found.filter(({ hiddenId }) => hiddenId === undefined)
  const byName = new Map(shown.map((one) => [one.store.name, one]))
  const byHiddenId = new Map(found.map((one) => [one.hiddenId, one]))
  const defaults = shown.filter(({ store }) => store.isDefault).toSorted(byStoreName)
  const layers = [
    ...defaults,
    ...names.flatMap((name) => byName.get(name) ?? []),
    ...inline.flatMap((id) => byHiddenId.get(id) ?? []),
  ]
  // Of repeats the last is kept.
  const once = layers.filter((layer, index) => layers.lastIndexOf(layer) === index)
  const secrets = new Map<string, { secret: ChainSecret; sealed: SealedSecret }>()
  for (const { store, hiddenId, secrets: own } of once) {
    for (const sealed of own) {
      const { name, allowedHosts, places, shape, sign } = sealed
      const secret: ChainSecret = {
        ...{ name, allowedHosts, places, shape },
        ...(hiddenId === undefined ? { storeName: store.name } : {}),
        ...(sign === undefined ? {} : { sign }),
      }
      secrets.set(name, { secret, sealed })
    }
  }
  return {
    stores: once
      .filter(({ hiddenId }) => hiddenId === undefined)
      .map(({ store: { id, name, egressAllowlist } }) => ({ id, name, egressAllowlist })),
    missing: [...new Set(names.filter((name) => !byName.has(name)))],
    secrets: [...secrets.values()],
  }
}

function byStoreName({ store: one }: ChainStore, { store: other }: ChainStore): number {
  return one.name < other.name ? -1 : 1
}
