/**
 * `node outside.ts FOLDER`: the servers of the world, in the network namespace that it is started in. It says `ready` and answers each line
 * of its standard input with a line, both JSON: `["since", mark]`, `["name", name, record]`.
 */
import { readFile } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { createSecureContext } from 'node:tls'
import { echo } from './echo.ts'
import { Journal } from './journal.ts'
import { type NameRecord, NameServer } from './names.ts'
import { packageSites } from './packages.ts'
import type { Pair, WorldFile } from './places.ts'
import { s3 } from './signature.ts'
import { startProxies } from './proxies.ts'
import { type Exchange, send, type Site, Web } from './web.ts'
import { startWires } from './wires.ts'

const [folder = ''] = process.argv.slice(2)
const world = JSON.parse(await readFile(`${folder}/world.json`, 'utf8')) as WorldFile
const journal = new Journal()
const names = new NameServer(journal)
for (const [name, record] of Object.entries(world.names)) names.records.set(name, record)

const contexts = world.certificates.map((pair) => ({ ...pair, context: createSecureContext(of(pair)) }))
const [main] = contexts
if (main === undefined) throw new Error('the world has no certificate')
const contextOf = (sni: string) =>
  (contexts.find((each) => each.names.some((name) => covers(name, sni))) ?? main).context

const sites: Record<string, Site> = {
  ...(await packageSites(`${folder}/packages`)),
  's3.test': s3,
  'doh.test': overHttps,
}
await names.listen(53)
await startWires(journal, names, { ...of(main), contextOf })
await startProxies(journal, names)
await new Web(journal, (host) => sites[host] ?? echo).listen({ ...of(main), contextOf })

console.log('ready')
for await (const line of createInterface({ input: process.stdin })) {
  const [command, first, second] = JSON.parse(line) as ['since', number] | ['name', string, NameRecord]
  if (command === 'name') names.records.set(first, second)
  const answer = command === 'since' ? { next: journal.length, seen: journal.since(first) } : {}
  console.log(JSON.stringify(answer))
}
process.exit(0)

function of({ certificate, key }: Pair): { cert: string; key: string } {
  return { cert: certificate, key }
}

function covers(pattern: string, name: string): boolean {
  return pattern === name || (pattern.startsWith('*.') && name.endsWith(pattern.slice(1)))
}

/** RFC 8484 */
async function overHttps(exchange: Exchange): Promise<void> {
  const body = await exchange.body()
  const query = body.length > 0 ? body : Buffer.from(exchange.url.searchParams.get('dns') ?? '', 'base64url')
  const answer = names.answer(query, 'https')
  if (answer === undefined) return send(exchange.response, 400, 'no message')
  send(exchange.response, 200, answer, { 'content-type': 'application/dns-message' })
}
