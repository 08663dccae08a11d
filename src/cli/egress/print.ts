import type { EgressEntryInfo, EgressInfo, EgressPolicyInfo } from '../../../sdk/src/index.ts'
import { writeFields } from '../fields.ts'
import { columns, printable, writeJson, writeLine } from '../output.ts'

type Layer = EgressInfo['layers'][number]
type ShownRule = EgressPolicyInfo['allow'][number]

/** What a sandbox may reach, a rule a line, each by the name that refusals have; then its secrets. */
export async function writeEgress(info: EgressInfo, { json = false }: { json?: boolean | undefined }): Promise<void> {
  if (json) return await writeJson(info)
  const { state, layers, stores, secrets, builtIn, unavailable } = info
  await writeFields({ state, unavailable, stores, builtIn }, {})
  if (layers.length > 0) await writeTable(['RULE', 'DOES', 'TO'], layers.flatMap(rowsOf))
  if (secrets.length > 0)
    await writeTable(
      ['SECRET', 'SENT TO', 'NOT SENT BECAUSE'],
      secrets.map(({ name, hosts, isUsed, why }) => [name, isUsed ? hosts.join(' ') : undefined, why]),
    )
}

/** The policy of an organisation. */
export async function writePolicy(
  policy: EgressPolicyInfo | null,
  { json = false }: { json?: boolean | undefined },
): Promise<void> {
  if (json) return await writeJson({ policy })
  if (policy === null) return await writeLine('none')
  const named = (list: 'allow' | 'deny') =>
    policy[list].map((rule, index) => ({ id: `organisation.${list}[${index}]`, ...rule }))
  const layer: Layer = { ...policy, source: 'organisation', allow: named('allow'), deny: named('deny') }
  await writeLine(columns(['RULE', 'DOES', 'TO'], rowsOf(layer)))
}

/** One line: lines of a stream cannot be aligned. */
export function entryLine(entry: EgressEntryInfo): string {
  const { number, ts, decision, protocol, host, address, port, method, path, status } = entry
  const { rule, reason, sentBytes, receivedBytes, secrets = [] } = entry
  const target = host === undefined ? (address ?? '') : address === undefined ? host : `${host} at ${address}`
  const asked = [method, path].filter((part) => part !== undefined)
  const facts = [
    ...(status === undefined ? [] : [`answer ${status}`]),
    ...(reason === undefined ? (rule === undefined ? [] : [`by ${rule}`]) : [reason]),
    ...(secrets.length === 0 ? [] : [`with ${secrets.join(', ')}`]),
    `${sentBytes} bytes sent, ${receivedBytes} received`,
  ]
  const words = [number, ts, decision, protocol, ...asked, `${target}:${port}`, `(${facts.join('; ')})`]
  return printable(words.join(' ').replaceAll(/[\n\t]/g, ' '))
}

async function writeTable(header: readonly string[], rows: readonly (readonly unknown[])[]): Promise<void> {
  await writeLine('')
  await writeLine(columns(header, rows))
}

function rowsOf({ source, mode, logOnly, allow, deny }: Layer): string[][] {
  const denies = logOnly ? 'records' : 'denies'
  const rest = allow.length + deny.length > 0 ? 'everything else' : 'everything'
  return [
    ...deny.map((rule) => [rule.id, denies, ruleText(rule)]),
    ...(mode === 'list' ? allow.map((rule) => [rule.id, 'allows', ruleText(rule)]) : []),
    [source, mode === 'all' ? 'allows' : denies, rest],
  ]
}

/** As rules are written, with what only an object can say behind it. */
function ruleText({ host, cidr, ports = [], methods = [], paths = [], inspect = false }: ShownRule): string {
  const ranges = ports.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`))
  const target = (host ?? cidr ?? '').replace(/\/32$/, '')
  return [
    ranges.length === 0 ? target : `${target}:${ranges.join(',')}`,
    ...(methods.length === 0 ? [] : [methods.join(',')]),
    ...paths,
    ...(inspect ? ['(TLS is read)'] : []),
  ].join(' ')
}
