/** What clients read of an organisation and its keys. */
export const organisationStatuses = ['active', 'suspended', 'deleting'] as const

/**
 * What a key may do. `read` sees, `write` makes, changes and deletes, `exec` acts inside of a sandbox: commands, files, ports.
 * Those without a verb open all of their noun.
 */
export const scopes = [
  'sandbox:read',
  'sandbox:write',
  'sandbox:exec',
  'session:read',
  'session:write',
  'image',
  'volume',
  'webhook',
  'keys',
  'usage',
  'secret',
  'egress',
  'preview',
  'events',
  'audit',
] as const
