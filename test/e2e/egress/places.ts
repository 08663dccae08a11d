/** Names and secrets of the world outside, as both its servers and the tests know them. */
import type { NameRecord } from './names.ts'

/** The name of the root authority, which is in each certificate of the servers outside. */
export const authorityName = 'Atoll test world'

/** Served with a certificate for all of them, at the main address. */
export const mainNames = [
  'api.test',
  'second.test',
  'read.test',
  'other.test',
  'plain.test',
  'raw.test',
  'grpc.test',
  'git.test',
  'npm.test',
  'pypi.test',
  'apt.test',
  'registry.test',
  'storage.test',
  's3.test',
  'go.test',
  'doh.test',
  'two.test',
  'rebind.test',
  'private.test',
  'alias.test',
] as const

/** Names of the attacker, at an address and with a certificate of their own. */
export const evilNames = [
  'evil.test',
  '*.evil.test',
  'xapi.test',
  'api.test.evil.test',
  'api-test.test',
  'api.tests',
] as const

/** What the servers outside ask of their users. */
export const credentials = {
  git: 'ghp_' + 'g1t'.repeat(12),
  npm: 'npm_' + 'n9m'.repeat(12),
  pypi: 'pypi-' + 'p1p'.repeat(12),
  apt: 'apt-' + 'a9t'.repeat(12),
  go: 'go-' + 'g8o'.repeat(12),
  registry: 'dckr_pat_' + 'd0k'.repeat(9),
  upstream: { user: 'operator', password: 'p@ss:w/rd' },
  s3: { accessKey: 'AKIA0REALREALREAL000', secretKey: 's3cr3t/REAL+' + 'x7'.repeat(14) },
} as const

export const ports = {
  http: 80,
  https: 443,
  httpsToo: 8443,
  ssh: 22,
  ftp: 21,
  lines: 9000,
  dnsOverTls: 853,
  udp: 7777,
  proxy: 3128,
  socks: 1080,
} as const

/** A certificate, its key, and the names that it is served for. */
export interface Pair {
  names: readonly string[]
  certificate: string
  key: string
}

/** What the servers outside are started with. */
export interface WorldFile {
  names: Record<string, NameRecord>
  /** The first is served to those who name no server. */
  certificates: Pair[]
}
