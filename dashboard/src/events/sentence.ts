import type { EventInfo } from 'atoll-sdk'
import { formatBytes, shorten } from '../lib/format.ts'

type Type = EventInfo['type']
type Data = EventInfo['data']

const mebibyte = 1024 * 1024
const wordsMax = 120

/** What an event says, in words that follow its subject: `was hibernated`. */
const phrases: Record<Type, (data: Data) => string> = {
  'sandbox.created': ({ template }) => `was created${from(template)}`,
  'sandbox.ready': () => 'is ready',
  'sandbox.hibernated': (data) => `was hibernated${reason(data)}`,
  'sandbox.resumed': () => 'woke',
  'sandbox.stopped': ({ reason: why }) =>
    why === 'expired'
      ? 'was deleted at its maximum age'
      : why === 'idle'
        ? 'was deleted since nobody used it'
        : 'was deleted',
  'sandbox.failed': (data) => `failed${reason(data)}`,
  'sandbox.migrated': () => 'moved to another host',
  'sandbox.forked': ({ parentId }) => `began as a fork of ${word(parentId)}`,
  'sandbox.scaled': (data) => `has ${sizes(data)} now`,
  'sandbox.autoscaled': (data) => `has ${sizes(data)} now, by autoscale`,
  'sandbox.preview_url.changed': ({ port, url }) =>
    url === null ? `no longer declares a preview of port ${word(port)}` : `declares a preview of port ${word(port)}`,
  'sandbox.egress.denied': ({ host, address, port, reason: why }) =>
    `was refused ${word(host ?? address)}:${word(port)}${why === undefined ? '' : `, ${word(why)}`}`,
  'sandbox.checkpoint.created': ({ name }) => `has a new checkpoint “${word(name)}”`,
  'checkpoint.failed': ({ name, message }) => `“${word(name)}” failed${because(message)}`,
  'checkpoint.deleted': ({ name, reason: why }) =>
    `“${word(name)}” was deleted${why === 'expired' ? ' at its time' : ''}`,
  'image.created': ({ name }) => `${named(name)}begins to build`,
  'image.ready': ({ name }) => `${named(name)}is built`,
  'image.failed': ({ name, message }) => `${named(name)}could not be built${because(message)}`,
  'image.published': ({ name }) => `${named(name)}is open to every organisation`,
  'image.unpublished': ({ name }) => `${named(name)}is open to its owner alone`,
  'image.deleted': ({ name }) => `${named(name)}was deleted`,
  'volume.created': ({ name, sizeMB }) => `${named(name)}was made${ofSize(sizeMB)}`,
  'volume.attached': ({ path }) => `is mounted at ${word(path)}`,
  'volume.detached': ({ path }) => `is no longer mounted at ${word(path)}`,
  'volume.deleted': ({ name }) => `${named(name)}was deleted`,
  'volume.snapshot.created': ({ name }) => `${named(name)}was taken`,
  'volume.snapshot.deleted': ({ name }) => `${named(name)}was deleted`,
  'session.created': () => 'was created',
  'session.starting': () => 'starts its machine',
  'session.working': () => 'works',
  'session.idle': () => 'waits for a message',
  'session.paused': () => 'is paused',
  'session.failed': () => 'failed',
  'session.ended': () => 'has ended',
  'session.deleted': () => 'was deleted with its history',
  'usage.budget_warning': ({ usedUsd, budgetUsd }) => `has used $${word(usedUsd)} of $${word(budgetUsd)} of the month`,
  'usage.budget_exceeded': ({ budgetUsd }) => `has used the whole budget of the month, $${word(budgetUsd)}`,
  'audit.head': ({ number }) => `stands at entry ${word(number)}`,
  'webhook.disabled': ({ reason: why }) => `was disabled${because(why)}`,
  'webhook.dropped': ({ count }) => `lost ${word(count)} deliveries that had waited too long`,
  'key.created': () => 'was created',
  'key.deleted': () => 'was ended',
  'organisation.suspended': ({ message }) => `was suspended${because(message)}`,
  'organisation.resumed': () => 'goes on',
}

const nouns: Readonly<Record<string, string>> = {
  sandbox: 'Sandbox',
  checkpoint: 'Checkpoint',
  image: 'Image',
  volume: 'Volume',
  session: 'Session',
  usage: 'The organisation',
  audit: 'The audit log',
  webhook: 'Webhook',
  key: 'Key',
  organisation: 'The organisation',
}

/** The noun of what an event is about: `Sandbox`. A newer server may have more. */
export function nounOf({ type }: EventInfo): string {
  if (type.startsWith('volume.snapshot.')) return 'Snapshot'
  const [noun = ''] = type.split('.')
  return nouns[noun] ?? noun
}

/** What has happened, without its subject and bounded in length: `was hibernated, since nobody used it`. */
export function phraseOf(event: EventInfo): string {
  const phrase = (phrases as Partial<Record<string, (data: Data) => string>>)[event.type]
  return `${phrase?.(event.data) ?? event.type.split('.').slice(1).join(' ')}${causeOf(event)}`
}

function causeOf({ type, cause, actor }: EventInfo): string {
  if (!type.startsWith('sandbox.')) return ''
  if (cause === 'idle_timeout' && type === 'sandbox.hibernated') return ', since nobody used it'
  if (cause === 'preview') return ', for a visitor of a preview'
  if (cause === 'signed_url') return ', for a signed URL'
  if (cause === 'exit') return ' by itself'
  if (cause === 'recovery') return ', as the start of the server found'
  if (actor.type === 'agent') return ', for its session'
  if (actor.type === 'sandbox') return ', by a program inside'
  if (actor.type === 'operator') return ', by the operator'
  return actor.type === 'token' ? ', by a guest of its session' : ''
}

function word(value: unknown): string {
  if (value === undefined || value === null) return '?'
  return shorten(typeof value === 'string' ? value : JSON.stringify(value), wordsMax)
}

function named(name: unknown): string {
  return name === undefined ? '' : `“${word(name)}” `
}

function from(template: unknown): string {
  return template === undefined || template === '' ? '' : ` from ${word(template)}`
}

function because(message: unknown): string {
  return message === undefined || message === '' ? '' : `: ${word(message)}`
}

function reason({ message, reason: why }: Data): string {
  return because(message ?? why)
}

function ofSize(sizeMB: unknown): string {
  return typeof sizeMB === 'number' ? ` with ${formatBytes(sizeMB * mebibyte)}` : ''
}

function sizes({ cpuCount, memoryMB }: Data): string {
  const memory = typeof memoryMB === 'number' ? formatBytes(memoryMB * mebibyte) : '?'
  return `${memory} of memory and ${word(cpuCount)} ${cpuCount === 1 ? 'CPU' : 'CPUs'}`
}
