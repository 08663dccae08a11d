/** `acp:` and what follows: a program and its arguments, split at blanks; single and double quotes hold one together. */
export function acpCommand(harness: string): [string, ...string[]] | undefined {
  const words: string[] = []
  for (const [, double, single, plain] of harness.slice('acp:'.length).matchAll(/"([^"]*)"|'([^']*)'|([^\s"']+)/g)) {
    words.push(double ?? single ?? plain ?? '')
  }
  const [program, ...args] = words
  return program ? [program, ...args] : undefined
}
