/** What a model costs, in US dollars. */
export interface ModelPrice {
  inputPerMillion: number
  outputPerMillion: number
}

/** What so many tokens cost, in US dollars. */
export function costUsd(price: ModelPrice, tokens: { input: number; output: number }): number {
  return (tokens.input * price.inputPerMillion + tokens.output * price.outputPerMillion) / 1_000_000
}
