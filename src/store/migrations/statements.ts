/**
 * The SQL of every migration, by name and in order. A released migration never changes: the next change is a new entry at the end.
 * A migration that needs code, such as a backfill, is a `Migration` of its own in `index.ts`.
 */
export const migrationStatements = {
  // Identifiers collate by bytes, because cursors compare them: the order must not depend on the locale of the server. Times carry
  // milliseconds, as JavaScript's dates do, so a value reads as it was written.
  '0001-initial': [
    `create table organisations (
      id text collate "C" primary key,
      name text not null,
      is_default boolean not null default false,
      created_at timestamptz(3) not null default now()
    )`,
    `create unique index organisations_default on organisations (is_default) where is_default`,

    `create table api_keys (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      key_hash text collate "C" not null constraint api_keys_key_hash unique,
      created_at timestamptz(3) not null
    )`,
    `create index api_keys_org on api_keys (org_id)`,

    `create table sandboxes (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      status text not null,
      reason text,
      reason_message text,
      image text not null,
      cpu_count double precision not null,
      memory_mb integer not null,
      disk_mb integer not null,
      timeout_seconds integer not null,
      envs jsonb not null,
      metadata jsonb not null,
      tags jsonb not null,
      tags_updated_at timestamptz(3),
      from_checkpoint_id text collate "C",
      preview_token_hash text,
      created_at timestamptz(3) not null,
      started_at timestamptz(3) not null,
      active_at timestamptz(3) not null,
      stopped_at timestamptz(3)
    )`,
    `create index sandboxes_list on sandboxes (org_id, created_at desc, id desc)`,
    `create index sandboxes_status on sandboxes (status)`,

    // No reference to the sandbox: a checkpoint outlives it.
    `create table checkpoints (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      sandbox_id text collate "C" not null,
      name text not null,
      kind text not null,
      status text not null,
      size_bytes bigint not null,
      sandbox_config jsonb not null,
      error text,
      last_patch_sequence integer not null default 0,
      created_at timestamptz(3) not null,
      constraint checkpoints_name unique (sandbox_id, name)
    )`,
    `create index checkpoints_org on checkpoints (org_id)`,

    `create table patches (
      id text collate "C" primary key,
      checkpoint_id text collate "C" not null references checkpoints on delete cascade,
      script text not null,
      description text not null,
      strategy text not null,
      sequence integer not null,
      created_at timestamptz(3) not null,
      constraint patches_sequence unique (checkpoint_id, sequence)
    )`,

    `create table previews (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      sandbox_id text collate "C" not null constraint previews_sandbox references sandboxes on delete cascade,
      port integer not null,
      custom_hostname text collate "C" constraint previews_custom_hostname unique,
      ssl_status text not null,
      auth_scheme text,
      token_hash text,
      created_at timestamptz(3) not null,
      constraint previews_port unique (sandbox_id, port)
    )`,

    `create table agent_configs (
      hash text collate "C" primary key,
      config jsonb not null,
      skills jsonb not null
    )`,

    // No reference to the sandbox: the session's row comes before it and stays after it.
    `create table sessions (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      user_id text not null,
      user_email text,
      user_name text,
      status text not null,
      activity text not null,
      sandbox_id text collate "C" not null,
      title text not null,
      framework text not null,
      artifacts jsonb not null,
      agent_config_hash text collate "C" not null references agent_configs,
      checkpoint_id text collate "C",
      gateway_token_hash text collate "C" not null constraint sessions_gateway_token unique,
      agent_process_id text,
      agent_offset bigint not null,
      input_tokens bigint not null,
      output_tokens bigint not null,
      last_sequence integer not null default 0,
      created_at timestamptz(3) not null,
      updated_at timestamptz(3) not null
    )`,
    `create index sessions_list on sessions (org_id, created_at desc, id desc)`,
    `create index sessions_user on sessions (org_id, user_id, created_at desc, id desc)`,
    `create index sessions_sandbox on sessions (sandbox_id)`,
    `create index sessions_running on sessions (created_at) where status = 'running'`,

    `create table messages (
      position bigint generated always as identity,
      id text collate "C" primary key,
      session_id text collate "C" not null references sessions on delete cascade,
      role text not null,
      content text not null,
      state text,
      created_at timestamptz(3) not null
    )`,
    `create unique index messages_order on messages (session_id, position)`,

    `create table session_events (
      position bigint generated always as identity,
      id text collate "C" primary key,
      session_id text collate "C" not null references sessions on delete cascade,
      type text not null,
      level text not null,
      message text not null,
      created_at timestamptz(3) not null
    )`,
    `create unique index session_events_order on session_events (session_id, position)`,

    // json, not jsonb: nothing looks inside, and a replay then shows the keys in the order in which they were first sent.
    `create table stream_events (
      session_id text collate "C" not null references sessions on delete cascade,
      sequence integer not null,
      data json not null,
      created_at timestamptz(3) not null,
      primary key (session_id, sequence)
    )`,

    `create table idempotency_keys (
      org_id text collate "C" not null references organisations,
      key text collate "C" not null,
      request_hash text not null,
      status_code integer,
      body text,
      headers jsonb,
      created_at timestamptz(3) not null,
      primary key (org_id, key)
    )`,
    `create index idempotency_keys_age on idempotency_keys (created_at)`,
  ],

  // The bytes of a session's stream, and the message whose turn is being interrupted: both must survive a restart of the server.
  '0002-session-output': [
    'alter table sessions add column stream_bytes bigint not null default 0',
    `update sessions set stream_bytes = coalesce(
      (select sum(octet_length(data::text)) from stream_events where session_id = sessions.id), 0)`,
    'alter table sessions add column interrupted_message_id text collate "C"',
  ],

  // The session that a fork comes from, and the sandbox whose checkpoint is deleted once the fork has started.
  '0003-session-forks': [
    'alter table sessions add column forked_from text collate "C"',
    'alter table sessions add column fork_checkpoint_of text collate "C"',
  ],

  // The approximate bytes of a session's messages and events. The server counts to the byte what it adds from now on.
  '0004-session-history': [
    'alter table sessions add column history_bytes bigint not null default 0',
    `update sessions set history_bytes =
      coalesce((select sum(octet_length(content) + 128) from messages where session_id = sessions.id), 0) +
      coalesce((select sum(octet_length(message) + 128) from session_events where session_id = sessions.id), 0)`,
  ],

  // The deletion of sessions asks for each configuration whether a session still uses it.
  '0005-session-purge': ['create index sessions_agent_config on sessions (agent_config_hash)'],

  // The data directory that the database belongs to, and deleted checkpoints whose data the driver may still hold.
  '0006-installation': [
    `create table installation (
      is_only boolean primary key default true constraint installation_is_only check (is_only),
      id text collate "C" not null
    )`,
    'create table deleted_checkpoints (id text collate "C" primary key)',
  ],

  // A domain is served once its proof was seen; until then any number of organisations may claim it. Existing domains were never
  // proven, so they wait for a proof like new ones.
  '0007-custom-domains': [
    'alter table previews add column verified_at timestamptz(3)',
    'alter table previews drop constraint previews_custom_hostname',
    'alter table previews add constraint previews_own_hostname unique (org_id, custom_hostname)',
    'create unique index previews_verified_hostname on previews (custom_hostname) where verified_at is not null',
    `create index previews_unverified on previews (org_id, created_at)
      where custom_hostname is not null and verified_at is null`,
    `update previews set ssl_status = 'pending' where custom_hostname is not null`,
  ],

  // Tokens read from and written to a cache, and the cost of the calls. The cost of earlier calls is unknown: null, and a sum with
  // null stays null.
  '0008-model-usage': [
    'alter table sessions add column cache_read_tokens bigint not null default 0',
    'alter table sessions add column cache_write_tokens bigint not null default 0',
    'alter table sessions add column cost_nano_usd bigint',
    'update sessions set cost_nano_usd = 0 where input_tokens + output_tokens = 0',
  ],

  // The ids that a request with an `Idempotency-Key` has created. They are unknown for requests that an earlier version left
  // unanswered: the hash of those keys is made to match no request, so nothing is done twice.
  '0009-idempotency-effects': [
    `alter table idempotency_keys
      add column seed text not null default '',
      add column made text[] not null default '{}'`,
    `update idempotency_keys set request_hash = '' where status_code is null`,
  ],

  // What a session waits for and since when; how often a sandbox was restored in place, and how many of those restores its session
  // has noticed.
  '0010-session-waits': [
    'alter table sessions add column waiting_for text collate "C"',
    'alter table sessions add column waiting_since timestamptz(3)',
    'alter table sandboxes add column restores integer not null default 0',
    'alter table sessions add column sandbox_restores integer not null default 0',
  ],

  // The next message of a session with a long history, and the sessions to forget among many that ended. Not by `updated_at`, which each
  // commit changes: PostgreSQL would write all indexes of the row anew.
  '0012-waiting-and-ended': [
    'create index messages_state on messages (session_id, state, position)',
    `create index sessions_ended on sessions (created_at) where status = 'ended'`,
  ],

  // Images: the claims of organisations to built contents, and the checkpoints after each step, from which later builds go on.
  '0013-images': [
    `create table images (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations (id),
      name text collate "C",
      content_hash text collate "C" not null,
      layer_hashes text[] not null,
      checkpoint_id text collate "C",
      status text collate "C" not null,
      manifest jsonb not null,
      memory_mb integer not null,
      is_detached boolean not null,
      is_public boolean not null,
      failure jsonb,
      created_at timestamptz(3) not null,
      last_used_at timestamptz(3) not null
    )`,
    'create unique index images_name on images (org_id, name) where name is not null',
    'create index images_content on images (org_id, content_hash)',
    `create table image_layers (
      org_id text collate "C" not null references organisations (id),
      hash text collate "C" not null,
      checkpoint_id text collate "C" not null,
      primary key (org_id, hash)
    )`,
    'alter table checkpoints add column is_public boolean not null default false',
  ],

  // Volumes, their snapshots, and the sandboxes that have them. The index on writers is what keeps a second one out.
  '0014-volumes': [
    `create table volumes (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      host_id text collate "C",
      name text collate "C" not null,
      size_mb integer not null,
      source text,
      created_at timestamptz(3) not null,
      constraint volumes_name unique (org_id, name)
    )`,
    `create table volume_snapshots (
      id text collate "C" primary key,
      org_id text collate "C" not null references organisations,
      volume_id text collate "C" not null constraint volume_snapshots_volume references volumes,
      name text collate "C" not null,
      size_mb integer not null,
      created_at timestamptz(3) not null,
      constraint volume_snapshots_name unique (volume_id, name)
    )`,
    `create table volume_attachments (
      sandbox_id text collate "C" not null references sandboxes on delete cascade,
      volume_id text collate "C" not null constraint volume_attachments_volume references volumes,
      path text not null,
      read_only boolean not null,
      primary key (sandbox_id, volume_id)
    )`,
    'create index volume_attachments_of on volume_attachments (volume_id)',
    'create unique index volume_attachments_writer on volume_attachments (volume_id) where not read_only',
    'create table volume_remains (id text collate "C" primary key)',
    `alter table sandboxes add column volumes jsonb not null default '[]'`,
    `alter table checkpoints add column volumes jsonb not null default '[]'`,
  ],

  // What OCI images say about commands, and which image it was.
  '0015-oci-images': [
    'alter table sandboxes add column command_defaults jsonb',
    'alter table images add column oci jsonb',
  ],

  // Bounds of autoscale, and the lock of the sizes.
  '0016-scaling': [
    `alter table sandboxes
      add column is_autoscaled boolean not null default false,
      add column autoscale_min_mb integer not null default 0,
      add column autoscale_max_mb integer not null default 0,
      add column is_scaling_locked boolean not null default false`,
  ],
} as const satisfies Record<string, readonly string[]>
