import { sql } from 'kysely'
import type { Kysely } from 'kysely'

/**
 * Identifiers collate by bytes: they are compared in cursors, whatever the locale of the server is. Times carry
 * milliseconds, as JavaScript's dates do, so that what is read equals what was written.
 */
const statements = [
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
]

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
