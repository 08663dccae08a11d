import type { ChainSecret } from '../ports/secret-source.ts'

/** The placeholders of one secret in one sandbox. */
export interface PlannedPlaceholder {
  /** The value of the environment variable of new processes. */
  own: string
  /** What processes of the checkpoints that it descends from may still hold. */
  inherited: string[]
}

/** A lineage has at most this many generations whose placeholders are still replaced; older ones stay text. */
const inheritedMax = 16

/**
 * Placeholders for the secrets of a sandbox: kept ones stay, others are made. `taken` are names that the client has given a value of its own:
 * such a secret is not used at all.
 */
export function placeholdersFor(
  secrets: readonly ChainSecret[],
  kept: Readonly<Record<string, PlannedPlaceholder>>,
  make: (shape: string) => string,
  taken: ReadonlySet<string> = new Set(),
): Record<string, PlannedPlaceholder> {
  return Object.fromEntries(
    secrets
      .filter(({ name }) => !taken.has(name))
      .map(({ name, shape }) => [name, Object.hasOwn(kept, name) ? kept[name]! : { own: make(shape), inherited: [] }]),
  )
}

/** Those of a fork before its own are made: what its processes hold now is inherited. */
export function inheritPlaceholders(
  of: Readonly<Record<string, PlannedPlaceholder>>,
  secrets: readonly ChainSecret[],
  make: (shape: string) => string,
): Record<string, PlannedPlaceholder> {
  return Object.fromEntries(
    secrets
      .filter(({ name }) => Object.hasOwn(of, name))
      .map(({ name, shape }) => {
        const { own, inherited } = of[name]!
        return [name, { own: make(shape), inherited: [own, ...inherited].slice(0, inheritedMax) }]
      }),
  )
}

/** Every text that stands for the secret in this sandbox. */
export function allOf({ own, inherited }: PlannedPlaceholder): string[] {
  return [own, ...inherited]
}
