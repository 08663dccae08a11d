/** Names for an error, with commas between; of more than `max` the first ones. */
export function listed(names: readonly string[], max: number): string {
  return `${names.slice(0, max).join(', ')}${names.length > max ? ' and more' : ''}`
}
