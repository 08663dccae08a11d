/** One spelling for all that a parser may hold to be the same name: in Go also the long s and the sign for Kelvin. */
export function folded(name: string): string {
  return name.toUpperCase().toLowerCase()
}
