/** These run when none is named. */
const usualBenches = [
  'start',
  'burst',
  'http',
  'checkpoint',
  'images',
  'builds',
  'memory',
  'stream',
  'output',
  'load',
  'cli',
  'alternatives',
] as const
/** They start servers of their own; `growth` takes minutes. */
const namedBenches = ['growth', 'sizes', 'tenants', 'webhooks', 'crowd', 'egress', 'time-travel'] as const

const benchNames = [...usualBenches, ...namedBenches] as const
export type BenchName = (typeof benchNames)[number]

export interface Options {
  benches: BenchName[]
  /** Print one JSON document instead of the table. */
  json: boolean
  /** Download the programs of others first. */
  install: boolean
}

const flags = ['--json', '--install']

/** Ends the process with status 2 when an argument is unknown. */
export function optionsOf(argv: readonly string[]): Options {
  const isBench = (argument: string): argument is BenchName => benchNames.some((name) => name === argument)
  const unknown = argv.filter((argument) => !isBench(argument) && !flags.includes(argument))
  if (unknown.length > 0) {
    console.error(`bench: unknown ${unknown.join(', ')}; known are ${[...benchNames, ...flags].join(', ')}`)
    process.exit(2)
  }
  const named = benchNames.filter((name) => argv.includes(name))
  return {
    benches: named.length > 0 ? named : [...usualBenches],
    json: argv.includes('--json'),
    install: argv.includes('--install'),
  }
}
