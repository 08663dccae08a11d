import type { Scope } from '../../../account/account.tsx'

/** What each scope opens, in the order in which they are offered. */
export const scopeTexts: Record<Scope, string> = {
  'sandbox:read': 'Sees sandboxes, tags and checkpoints.',
  'sandbox:write': 'Makes, changes, hibernates and deletes sandboxes.',
  'sandbox:exec': 'Acts inside of sandboxes: commands, terminals, files, ports.',
  'session:read': 'Sees sessions and follows them.',
  'session:write': 'Makes sessions, sends messages to them and ends them.',
  image: 'Images, builds, templates and credentials of registries.',
  volume: 'Volumes and their snapshots.',
  preview: 'Previews with their domains and tokens.',
  events: 'Follows the log of the organisation, which keeps this page live.',
  keys: 'Makes, lists and ends keys.',
  webhook: 'Destinations of webhooks and their deliveries.',
  usage: 'Sees what was used and what it costs.',
  audit: 'Sees who has done what.',
  secret: 'Secret stores and the secrets in them.',
  egress: 'Changes what all sandboxes of the organisation may reach.',
}

export const allScopes = Object.keys(scopeTexts) as Scope[]

/** Scopes that show or change the whole organisation, which a name prefix cannot bound. */
export const wholeScopes: ReadonlySet<Scope> = new Set(['webhook', 'usage', 'secret', 'egress', 'events', 'audit'])
