import type { SystemUser } from '../lib/system-user.ts'

/**
 * Names of the cluster: the role that owns the database, that of the process that sends webhooks, the one that administers the cluster, and the
 * database.
 */
export const databaseRole = 'atoll'
export const webhookRole = 'atoll_webhooks'
export const adminRole = 'atoll_admin'
export const databaseName = 'atoll'

/** The number in the socket's file name; nothing listens on this TCP port. */
export const socketPort = 5432

/** The file with our settings, in the cluster's folder. It marks a cluster as ours. */
export const settingsFile = 'atoll.conf'

/** The file with the operator's settings, which override ours. */
export const ownSettingsFile = 'own.conf'

/** The content of the cluster's `postgresql.conf`. */
export const mainSettings = `# Made by Atoll, whose settings are in ${settingsFile}. Yours go into ${ownSettingsFile}.
include '${settingsFile}'
include_if_exists '${ownSettingsFile}'
`

/** The first content of the operator's file of settings. */
export const ownSettings =
  '# Settings of your own: they win, and Atoll never touches this file. Restart Atoll after a change.\n'

/**
 * Settings for a small machine: an acknowledged commit is on the disk, only the socket takes connections, and a session that is idle in a
 * transaction is ended. The pools set the timeout of statements, since migrations and dumps have none.
 */
export function clusterSettings({ socketDir, connectionsMax }: { socketDir: string; connectionsMax: number }): string {
  const settings: Record<string, string | number> = {
    listen_addresses: `''`,
    unix_socket_directories: `'${socketDir.replaceAll("'", "''")}'`,
    unix_socket_permissions: '0770',
    port: socketPort,
    max_connections: connectionsMax,
    superuser_reserved_connections: 3,
    fsync: 'on',
    synchronous_commit: 'on',
    full_page_writes: 'on',
    wal_level: 'minimal',
    max_wal_senders: 0,
    max_wal_size: `'256MB'`,
    min_wal_size: `'48MB'`,
    shared_buffers: `'32MB'`,
    work_mem: `'4MB'`,
    maintenance_work_mem: `'32MB'`,
    temp_file_limit: `'1GB'`,
    max_worker_processes: 2,
    max_parallel_workers: 0,
    max_parallel_workers_per_gather: 0,
    autovacuum_max_workers: 1,
    huge_pages: 'off',
    jit: 'off',
    idle_in_transaction_session_timeout: `'60s'`,
    client_connection_check_interval: `'10s'`,
    timezone: `'UTC'`,
    lc_messages: `'C'`,
    log_checkpoints: 'off',
    log_timezone: `'UTC'`,
    // The server logs errors of statements itself; a tenant must not fill the disk with them.
    log_min_messages: 'log',
  }
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`)
  return `# Written by Atoll at each start: changes are lost. Put your own into ${ownSettingsFile} beside it.\n${lines.join('\n')}\n`
}

interface Users {
  user: SystemUser
  /** That of the process that sends webhooks. */
  webhookUser: SystemUser
}

/**
 * Who may connect: root (this server) as the owner and the administrator, the cluster's own user as the administrator, for an upgrade, and the
 * process that sends webhooks as its role.
 */
export function authentication({ user, webhookUser }: Users): { 'pg_hba.conf': string; 'pg_ident.conf': string } {
  return {
    'pg_hba.conf': 'local all all peer map=atoll\n',
    'pg_ident.conf': [
      `atoll root ${databaseRole}`,
      `atoll root ${adminRole}`,
      `atoll ${user.name} ${adminRole}`,
      `atoll ${webhookUser.name} ${webhookRole}`,
      '',
    ].join('\n'),
  }
}
