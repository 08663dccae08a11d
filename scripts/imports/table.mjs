/**
 * What each folder may import, from the bottom to the top. A name is a file, or a folder of `src/` without what has a longer name here.
 * Types count as values do: who names a type of a layer above knows that layer. Tests and what they share may import all.
 * `plugin.mjs` makes the linter check it, `draw.mjs` draws it.
 */
const base = ['errors.ts', 'lib']
const ofRuntime = [...base, 'protocol/hostd.ts', 'sandbox/ports', 'runtime']
const tools = [...ofRuntime, 'runtime/hostd', 'runtime/cleanup.ts']
const files = ['exclude-patterns', 'glob', 'tar-reader', 'tar-writer'].map((name) => `protocol/${name}.ts`)
const domains = ['events', 'sandbox', 'image', 'session', 'organisation', 'webhook', 'secret']

export const table = {
  'errors.ts': [],
  lib: ['errors.ts'],
  protocol: base,
  events: [...base, 'protocol/log-events.ts'],
  sandbox: [...base, 'events'],
  organisation: [...base, 'events', 'protocol/organisation.ts', 'protocol/audit.ts'],
  secret: base,
  webhook: [...base, 'events'],
  // A process of its own, which knows the tables of its queue alone.
  'webhook/delivery': [...base, 'webhook'],
  image: [...base, 'protocol/http/images.ts', ...files, 'events', 'sandbox/index.ts'],
  session: [...base, 'protocol', 'events', 'sandbox/index.ts'],

  // Programs, processes and files of the host, and the terms of self-tests.
  runtime: [...base, 'protocol/hostd.ts', 'sandbox/ports'],
  'runtime/hostd': ofRuntime,
  'runtime/cleanup.ts': [...ofRuntime, 'runtime/hostd'],
  'runtime/guest-client': [...ofRuntime, 'protocol'],
  'runtime/network': tools,
  'runtime/cgroups': tools,
  'runtime/disk': tools,
  'runtime/egress': [...tools, 'runtime/cgroups', 'runtime/network'],
  'runtime/lxcfs.ts': [...tools, 'runtime/disk'],
  'runtime/oci': [...tools, 'runtime/cgroups', 'runtime/lxcfs.ts'],
  'runtime/oci-image': [...tools, 'runtime/cgroups', 'runtime/disk'],
  'runtime/criu': [...tools, 'runtime/cgroups', 'runtime/disk', 'runtime/lxcfs.ts', 'runtime/oci'],
  'runtime/trees': [...tools, 'runtime/oci'],
  'runtime/host': [
    ...[...tools, 'runtime/guest-client', 'runtime/network', 'runtime/cgroups', 'runtime/disk', 'runtime/lxcfs.ts'],
    ...['runtime/oci', 'runtime/oci-image', 'runtime/criu', 'runtime/egress', 'runtime/trees'],
  ],
  'runtime/index.ts': ['runtime/disk', 'runtime/oci', 'runtime/oci-image', 'runtime/host'],
  'runtime/doctor': [
    ...['runtime/network', 'runtime/disk', 'runtime/oci', 'runtime/criu', 'runtime/host', 'runtime/egress'],
    ...[...base, 'runtime'],
  ],

  postgres: base,
  store: [...base, 'protocol/audit.ts', ...domains],
  'http/server': [...base, 'protocol', ...domains],
  'http/routes': [...base, 'protocol', ...domains, 'http/server'],
  preview: [...base, 'protocol', 'events', 'sandbox', 'session', 'organisation'],
  gateway: [...base, 'protocol', 'events', 'sandbox', 'session', 'organisation'],
  metadata: [...base, 'events', 'sandbox/index.ts'],
  agent: [...base, 'protocol'],
  sdk: ['protocol'],
  mcp: [...base, 'protocol', 'sdk'],
  cli: [...base, 'protocol', 'sdk', 'mcp'],
}

/** Wires all of it; no folder imports it. */
export const top = 'server'

/** The row of a file, by its path below `src/`; undefined for what has none. */
export function rowOf(path) {
  const names = [...Object.keys(table), top].filter((name) => isIn(path, name))
  return names.toSorted((one, other) => other.length - one.length)[0]
}

export function isAllowed(from, to) {
  const row = rowOf(from)
  const target = rowOf(to)
  if (row === target || row === top) return true
  return (table[row] ?? []).some((name) => isIn(to, name) && (rowOf(name) !== name || name === target))
}

function isIn(path, name) {
  return path === name || path.startsWith(`${name}/`)
}
