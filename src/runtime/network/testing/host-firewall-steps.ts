/**
 * Runs the steps in its arguments, one after the other, in the network namespace in which it starts, and prints what it has seen as JSON.
 * Steps: `open HASH`, `again` (by the server that has opened last), `close HASH`, `leave HASH`, `load RULES` (as `nft -f` takes them) and
 * `show`, which lists all rules.
 */
import { execFileSync } from 'node:child_process'
import { run } from '../../command.ts'
import { HostFirewall } from '../host-firewall/index.ts'

export interface Seen {
  /** What was logged. */
  said: string[]
  /** The rules at each `show`. */
  shown: string[]
}

const said: string[] = []
const shown: string[] = []

const firewall = (hash: string, isLeft = false) =>
  new HostFirewall({
    run,
    hash,
    cidr: '10.200.0.0/16',
    hostAddress: '10.200.0.1',
    gatewayPort: 4180,
    metadataPort: 4181,
    egressPort: 4182,
    egressDnsPort: 4183,
    isLeft,
    log: (message) => said.push(message),
  })

let opened: HostFirewall | undefined
const work: Record<string, (rest: string) => Promise<void> | void> = {
  open: (hash) => (opened = firewall(hash)).open(),
  again: () => opened?.open(),
  leave: (hash) => firewall(hash, true).open(),
  close: (hash) => firewall(hash).close(),
  load: (rules) => void execFileSync('nft', ['-f', '-'], { input: rules }),
  show: () => void shown.push(execFileSync('nft', ['--stateless', 'list', 'ruleset'], { encoding: 'utf8' })),
}

for (const step of process.argv.slice(2)) {
  const [, verb = '', rest = ''] = /^(\S+) ?(.*)$/s.exec(step) ?? []
  await work[verb]?.(rest)
}
console.log(JSON.stringify({ said, shown } satisfies Seen))
